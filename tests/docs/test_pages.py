"""The pages below docs/ are drawn from the code where they repeat it, and point only at what exists."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import CHECKOUT
from tools import draw_states, draw_tables

PAGES = [CHECKOUT / "README.md", *sorted((CHECKOUT / "docs").glob("*.md"))]
ROOTS = [CHECKOUT / "coordinator" / "amends_coordinator", CHECKOUT / "sdk" / "amends", CHECKOUT]

LINK = re.compile(r"\]\((?P<target>[^)#]+)(?:#[^)]*)?\)")
CODE_ENTRY = re.compile(r"`(?P<file>[\w/]+\.py):(?P<name>[\w.]+)`")


def dead_links(page: Path) -> Iterator[str]:
    """Links to files that aren't there."""
    for found in LINK.finditer(page.read_text("utf-8")):
        if not (page.parent / found["target"]).exists():
            yield found["target"]


def defined(source: str) -> set[str]:
    """Functions, classes and methods of a module; a method as `Class.method`."""
    names: set[str] = set()
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            inner = (child for child in node.body if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef))
            names.update(f"{node.name}.{child.name}" for child in inner)
    return names


def lost_entries(text: str) -> Iterator[str]:
    """Code entries that name no function."""
    for found in CODE_ENTRY.finditer(text):
        files = [root / found["file"] for root in ROOTS if (root / found["file"]).is_file()]
        if not any(found["name"] in defined(file.read_text("utf-8")) for file in files):
            yield found[0]


def test_states_are_drawn_from_the_tables() -> None:
    """docs/saga-states.md is what `core/transitions.py` says."""
    assert draw_states.PAGE.read_text("utf-8") == draw_states.page(), "run tools/draw_states.py"


def test_tables_are_drawn_from_the_code() -> None:
    """The methods, reasons and settings of the docs are those of the coordinator."""
    assert not [*draw_tables.stale_pages()], "run tools/draw_tables.py"
    everything = "".join(page.read_text("utf-8") for page in draw_tables.PAGES)
    assert all(f"<!-- drawn: {name} -->" in everything for name in draw_tables.DRAWN)


def test_a_stale_table_is_noticed() -> None:
    """A table that says something else than the code is drawn anew."""
    page = "<!-- drawn: methods -->\nout of date\n<!-- end of methods -->\nkept\n"
    drawn = draw_tables.fresh(page)
    assert "out of date" not in drawn
    assert drawn.endswith("<!-- end of methods -->\nkept\n")
    assert "| SagaService | `OpenSaga` | not yet |" in drawn
    assert "| SagaService | `StartSaga` | yes |" in drawn


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    """Every link to a file of this checkout finds it."""
    assert not [*dead_links(page)]


def test_code_entries_exist() -> None:
    """Where the docs say `file:function`, there is one."""
    entries = [entry for page in PAGES for entry in lost_entries(page.read_text("utf-8"))]
    assert not entries
    assert [*lost_entries("`core/decide.py:decide` `core/decide.py:nothing` `core/nowhere.py:decide`")] == [
        "`core/decide.py:nothing`",
        "`core/nowhere.py:decide`",
    ]
