"""docs/definitions.md: what `amends check` prints there is what it prints, on the files of the README."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING

from tests.docs.pages import CHECKOUT, README, Command, commands, missing_from, named_files, same_in_every_run

if TYPE_CHECKING:
    from pathlib import Path

PAGE = CHECKOUT / "docs" / "definitions.md"
BOUND_S = 60
VERSION = re.compile("version [0-9a-f]{16}")


def run(folder: Path, line: str) -> subprocess.CompletedProcess[str]:
    """Run a command that the page tells its reader to type; in a process of its own, because it imports modules."""
    words = [sys.executable, "-m", "amends.cli", *line.split()[1:]]
    return subprocess.run(words, cwd=folder, timeout=BOUND_S, check=False, capture_output=True, text=True)


def printed(folder: Path, command: Command, *, code: int) -> str:
    """What a command prints; it has to print what the page shows."""
    done = run(folder, command.line)
    assert (done.returncode, done.stderr) == (code, "")
    assert not missing_from(same_in_every_run(command.output), same_in_every_run(done.stdout))
    return done.stdout


def test_check_prints_what_the_page_shows(tmp_path: Path) -> None:
    """A module, the same saga as JSON with the same version, and two slips that are told with what was meant."""
    for name, text in (named_files(README) | named_files(PAGE)).items():
        (tmp_path / name).write_text(text)
    slips = (tmp_path / "ticket.json").read_text().replace('"input": "seat"', '"input": "sest"')
    (tmp_path / "misspelt.json").write_text(slips.replace("/Pay", "/Pays"))
    assert run(tmp_path, "amends generate tickets.proto").returncode == 0
    module, file, misspelt = commands(PAGE)
    said = [printed(tmp_path, module, code=0), printed(tmp_path, file, code=0), printed(tmp_path, misspelt, code=1)]
    assert len(set(VERSION.findall("".join([*said, PAGE.read_text("utf-8")])))) == 1
