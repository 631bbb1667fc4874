"""Reads the pages that people read: their blocks of code, and the output that they show."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent.parent
README = CHECKOUT / "README.md"

_NAMED_FILE = re.compile(
    r"^`(?P<name>[a-z_]+\.(?:py|proto|json))`\n\n```[a-z]+\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)
_CONSOLE = re.compile(r"^```console\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)

# What differs between two runs of the same thing: times, bars, ids that somebody made up, process numbers.
_DIFFERS = (
    (re.compile(r"^ +\|0\b.*\|$", re.MULTILINE), "AXIS"),
    (re.compile(r" +┊ shortened$", re.MULTILINE), ""),
    (re.compile(r" *[█▓▒·┊][█▓▒·┊ ]*"), " "),
    (re.compile(r"\b\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ"), "INSTANT"),
    (re.compile(r"\+?\b[\d.]+ (ms|s)\b"), "TIME"),
    (re.compile(r"\bnode \S+"), "NODE"),
    (re.compile(r"\b127\.0\.0\.1:\d+\b"), "ADDRESS"),
    (re.compile(r"\b(auth|order|parcel|charge)-[0-9a-f]{12}\b"), r"\1-ID"),
    (re.compile(r"\bprocess \d+"), "PROCESS"),
    (re.compile(r"\bversion [0-9a-f]{16}\b"), "VERSION"),
    (re.compile(r" +"), " "),
)


@dataclass(frozen=True, slots=True)
class Command:
    """One line that the reader types, and what the page says it prints."""

    line: str
    output: str

    @property
    def in_background(self) -> bool:
        """Whether the reader's shell goes on at once."""
        return self.line.endswith("&")


def named_files(page: Path) -> dict[str, str]:
    """The files that a page tells its reader to write, by name."""
    return {found["name"]: found["text"] for found in _NAMED_FILE.finditer(page.read_text("utf-8"))}


def commands(page: Path) -> list[Command]:
    """The commands that a page tells its reader to type, in order."""
    typed: list[Command] = []
    for block in _CONSOLE.finditer(page.read_text("utf-8")):
        for part in re.split(r"^\$ ", block["text"], flags=re.MULTILINE)[1:]:
            line, _, output = part.partition("\n")
            typed.append(Command(line, output))
    return typed


def same_in_every_run(output: str) -> list[str]:
    """An output's lines, without what differs between two runs."""
    for pattern, replacement in _DIFFERS:
        output = pattern.sub(replacement, output)
    return [line.rstrip() for line in output.splitlines()]


def missing_from(shown: list[str], printed: list[str]) -> list[str]:
    """Lines that are shown and not printed, in this order; `…` stands for what is left out."""
    rest = iter(printed)
    return [line for line in shown if line != "…" and line not in rest]
