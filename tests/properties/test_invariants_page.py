"""The page of promises names tests that exist and that say which promise they guard."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parent.parent.parent
PROMISES = [*(f"S{number}" for number in range(1, 13)), "L1", "L2"]
SECTION = re.compile(r"^## (\w+): .*$", re.MULTILINE)
NAMED_TEST = re.compile(r"^\* (tests/[\w/]+\.py)::(test_\w+)$", re.MULTILINE)
RANGE = re.compile(r"\bS(\d+) to S(\d+)\b")


def _sections() -> dict[str, str]:
    """The page's text by promise."""
    _, *parts = SECTION.split((CHECKOUT / "docs" / "invariants.md").read_text(encoding="utf-8"))
    return dict(zip(parts[::2], parts[1::2], strict=True))


def cited(docstring: str) -> set[str]:
    """The promises that a docstring names, one by one or as a range."""
    ranges = {f"S{number}" for low, high in RANGE.findall(docstring) for number in range(int(low), int(high) + 1)}
    return ranges | set(re.findall(r"\b[SL]\d+\b", docstring))


def _docstring(path: str, name: str) -> str | None:
    """The docstring of a test; None if there is no such test."""
    file = CHECKOUT / path
    if not file.is_file():
        return None
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
            return ast.get_docstring(node) or ""
    return None


def test_every_promise_has_its_section() -> None:
    """S1 to S12, L1, L2: in this order, each once."""
    assert list(_sections()) == PROMISES


@pytest.mark.parametrize("promise", PROMISES)
def test_named_tests_exist_and_cite_the_promise(promise: str) -> None:
    """S1 to S12, L1, L2: a reader who looks up a promise finds tests that guard it."""
    text = _sections()[promise]
    named = NAMED_TEST.findall(text)
    assert named
    assert text.count("\n* ") == len(named), "a line of the list names no test"
    docstrings = {f"{path}::{name}": _docstring(path, name) for path, name in named}
    assert not [test for test, docstring in docstrings.items() if docstring is None], "these tests don't exist"
    silent = [test for test, docstring in docstrings.items() if promise not in cited(docstring or "")]
    assert not silent, f"these tests don't say that they guard {promise}"


def test_citations_are_understood() -> None:
    """Ranges count as all that they span."""
    assert cited("S1 to S3, L1: everything.") == {"S1", "S2", "S3", "L1"}
    assert cited("F13, S12: nothing else.") == {"S12"}
    assert cited("No promise.") == set()
