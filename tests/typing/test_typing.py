"""Runs both type checkers, strict, on what they must accept and on what they must reject."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parent.parent
GOOD, BAD = HERE / "good.py", HERE / "bad.py"
MARK = re.compile(r"# (M\d+) ")
MYPY_ERROR = re.compile(r"^(.+?):(\d+): error: (.*)$", re.MULTILINE)
FIRST_RUN_TIMEOUT_S = 300

Found = dict[str, set[int]]
"""Per file name the lines that a checker finds fault with."""


@pytest.fixture(scope="module", params=["mypy", "pyright"])
def found(request: pytest.FixtureRequest) -> Found:
    """What one of the two checkers says of both files."""
    return mypy() if request.param == "mypy" else pyright()


@pytest.mark.timeout(FIRST_RUN_TIMEOUT_S)
def test_the_good_file_is_accepted(found: Found) -> None:
    """Typed SDK: what is right needs no cast and no ignore."""
    assert found.get(GOOD.name, set()) == set()


@pytest.mark.timeout(FIRST_RUN_TIMEOUT_S)
def test_every_planted_mistake_is_rejected_and_nothing_else(found: Found) -> None:
    """Typed SDK: no field path, request, response, input or end of a saga is a guess."""
    marks = {number: line for number, line in enumerate(BAD.read_text("utf-8").splitlines(), 1) if MARK.search(line)}
    assert len(marks) >= 20
    missed = [marks[number] for number in sorted(marks.keys() - found[BAD.name])]
    too_much = sorted(found[BAD.name] - marks.keys())
    assert (missed, too_much) == ([], [])


def mypy() -> Found:
    """mypy with the project's own settings, which are strict; naming the files overrules that it leaves them out."""
    cache = CHECKOUT / ".mypy_cache" / "typing"
    ran = run([sys.executable, "-m", "mypy", f"--cache-dir={cache}", "--no-error-summary", str(GOOD), str(BAD)])
    assert ran.stderr == ""
    lines: Found = {}
    for path, number, _ in MYPY_ERROR.findall(ran.stdout):
        lines.setdefault(Path(path).name, set()).add(int(number))
    return lines


def pyright() -> Found:
    """pyright with the settings beside this file: the project's, which leave bad.py out, can't be overruled."""
    ran = run([sys.executable, "-m", "pyright", "--project", str(HERE), "--outputjson"])
    report: dict[str, Any] = json.loads(ran.stdout)  # pyright's own report, of which two fields are read
    assert report["summary"]["filesAnalyzed"] == 2
    lines: Found = {}
    for fault in report["generalDiagnostics"]:
        if fault["severity"] == "error":
            lines.setdefault(Path(fault["file"]).name, set()).add(int(fault["range"]["start"]["line"]) + 1)
    return lines


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    """Runs a checker in the checkout; its caches stay there."""
    cache = CHECKOUT / ".venv" / "cache" / "pyright"
    environment = {"PYRIGHT_PYTHON_CACHE_DIR": str(cache), "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"} | dict(os.environ)
    return subprocess.run(
        command, cwd=CHECKOUT, env=environment, capture_output=True, text=True, check=False, timeout=FIRST_RUN_TIMEOUT_S
    )
