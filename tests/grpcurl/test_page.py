"""docs/grpcurl.md, typed with a real grpcurl against a real coordinator and the real services, prints what it shows."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.grpcurl.reader import PAGE, Typed, comparable, not_printed, reader, typed
from tests.grpcurl.tool import prints_as_the_page

if TYPE_CHECKING:
    from pathlib import Path

PAGE_BOUND_S = 300


@pytest.mark.grpcurl
@pytest.mark.slow
@pytest.mark.timeout(2 * PAGE_BOUND_S)
def test_the_page_prints_what_it_shows(grpcurl: Path, tmp_path: Path) -> None:
    """A saga is as easy to look at as a web page: found, watched, aborted, repaired, readable when all have gone."""
    if not prints_as_the_page(grpcurl):
        pytest.skip(f"docs/grpcurl.md was not tested: {grpcurl} is older than 1.9")
    printed: list[tuple[Typed, str]] = []
    with reader(tmp_path, grpcurl) as person:
        for command in typed(PAGE.read_text("utf-8")):
            said = person.type(command)
            if said is not None:
                printed.append((command, said))
        printed += person.what_went_on_beside()
    compared = ((command, said, not_printed(comparable(command.output), comparable(said))) for command, said in printed)
    assert not [(command.text, wrong, said) for command, said, wrong in compared if wrong]


def test_everything_that_the_page_shows_is_typed() -> None:
    """No command stands in a block that the reader doesn't read."""
    text = PAGE.read_text("utf-8")
    assert len(re.findall(r"^\$ ", text, re.MULTILINE)) == sum(not one.in_first_terminal for one in typed(text))
    assert set(re.findall(r"^```(\w+)$", text, re.MULTILINE)) == {"console", "sh", "json"}


def test_a_line_that_is_not_printed_is_noticed() -> None:
    """The comparison fails for a changed line, for one that is too many, and for lines that don't stand together."""
    printed = ["{", "a", "b", "c", "}"]
    assert not_printed(printed, printed) == []
    assert not_printed(["{", "a", "…", "c", "…"], printed) == []
    assert not_printed(["…", "a", "c", "…"], printed) == ["a", "c"]
    assert not_printed(["{", "…", "x", "…"], printed) == ["x"]
    assert not_printed(["a", "…"], printed) == ["a"]
    assert not_printed(["{", "a", "b"], printed) == ["c", "}"]
    assert not_printed([], ["unexpected"]) == ["unexpected"]
    assert not_printed([], []) == []
