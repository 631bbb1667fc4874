"""What the README shows of `make demo` is what the demo prints."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.docs.pages import README, missing_from, same_in_every_run

DEMO_BOUND_S = 110
SHOWN = re.compile(r"^<!-- demo: .*-->\n```text\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
# How often a call had to be made depends on how busy the machine is.
ATTEMPT = re.compile(r"── #\d+ ")


def comparable(text: str) -> list[str]:
    """The lines that are the same in every run."""
    return [line for line in same_in_every_run(text) if not ATTEMPT.search(line)]


@pytest.mark.slow
def test_readme_shows_what_the_demo_prints() -> None:
    """Each line of the README's block comes out of the demo, in this order, and the last is the last."""
    found = SHOWN.search(README.read_text("utf-8"))
    assert found
    done = subprocess.run(
        [sys.executable, "-m", "shop.demo"], timeout=DEMO_BOUND_S, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    shown, printed = comparable(found["text"]), comparable(done.stdout)
    assert not missing_from(shown, printed), done.stdout
    assert shown[-1] == printed[-1]


def test_a_line_that_is_not_printed_is_noticed() -> None:
    """The comparison fails for a line that changed, and for lines in another order."""
    assert missing_from(["a", "…", "c"], ["a", "b", "c"]) == []
    assert missing_from(["a", "x"], ["a", "b"]) == ["x"]
    assert missing_from(["b", "a"], ["a", "b"]) == ["a"]
