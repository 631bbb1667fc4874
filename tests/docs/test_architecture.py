"""docs/architecture.md tells what the core decides: its stories are played, and its claims about imports are so."""

from __future__ import annotations

import re

import pytest

from tests.docs.pages import CHECKOUT
from tests.unit.core.sagas import pivot, saga_of, step
from tests.unit.core.stories import play
from tools import draw_tables

PAGE = (CHECKOUT / "docs" / "architecture.md").read_text("utf-8")
STORIES = re.compile(r"^<!-- story: (?P<name>\w+) -->\n```text\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
TOLD = {found["name"]: found["text"] for found in STORIES.finditer(PAGE)}


@pytest.mark.parametrize("name", ["declined", "crash", "abort"])
def test_the_stories_are_what_the_core_decides(name: str) -> None:
    """The README's ticket, event by event."""
    play(saga_of(step("hold", needs_response=False), pivot("pay")), TOLD[name])


def test_adapters_do_not_know_each_other() -> None:
    """Only the API knows the engine, and no adapter another one."""
    adapters = {"ledger", "calls", "telemetry", "grpc_api"}
    edges = draw_tables.imports()
    assert not [(a, b) for a, b in edges if a in adapters and b in adapters]
    assert {a for a, b in edges if a in adapters and b == "engine"} == {"grpc_api"}
    assert not [b for a, b in edges if a == "core"]


def test_what_follows_from_other_imports_is_left_out() -> None:
    """A diagram that shows every edge shows none."""
    assert draw_tables.reduced({("a", "b"), ("b", "c"), ("a", "c")}) == {("a", "b"), ("b", "c")}
