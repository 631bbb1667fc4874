"""docs/outbox.md shows a program that does what the page says, and the options as they are."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields
from pathlib import Path

from amends.outbox import RelayOptions
from tests.docs.pages import CHECKOUT, commands, named_files

PAGE = CHECKOUT / "docs" / "outbox.md"


def test_the_program_prints_what_the_page_shows(tmp_path: Path) -> None:
    """O1, O2: the page's program, typed and run."""
    (program,) = named_files(PAGE).items()
    (command,) = commands(PAGE)
    (tmp_path / program[0]).write_text(program[1])
    done = subprocess.run([sys.executable, program[0]], cwd=tmp_path, check=False, capture_output=True, text=True)
    assert command.line == f"python {program[0]}"
    assert (done.stdout, done.stderr) == (command.output, "")


def test_every_option_is_on_the_page() -> None:
    """The table of the options names all of them."""
    text = PAGE.read_text("utf-8")
    assert [each.name for each in fields(RelayOptions) if f"`{each.name}`" not in text] == []
