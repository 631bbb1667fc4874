"""How a case went, and how that is told: what a person needs who has never seen the matrix before."""

from __future__ import annotations

import textwrap
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from amends.v1 import saga_pb2

if TYPE_CHECKING:
    from amends.testing.cases import FaultCase

FIRST_LINES, LAST_LINES = 40, 20
"""How much is shown of a long timeline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """How a case went.

    Attributes:
        case: the case.
        seed: what ids and chance were made from.
        end: how the saga ended, in words.
        findings: everything that is wrong; empty: the world is consistent.
        timeline: what happened, in virtual time.
        met: whether what goes wrong in this case could go wrong at all: a participant without a barrier, for example,
            never reaches the moment before the barrier's commit. Then the case says nothing.
    """

    case: FaultCase
    seed: int
    end: str
    findings: tuple[str, ...]
    timeline: str
    met: bool

    @property
    def consistent(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings

    def told(self, *, replay: str = "") -> str:
        """The whole story of a case that went wrong.

        Args:
            replay: the command that runs exactly this case again.
        """
        case = self.case
        rows = [
            ("step", f"{case.step}, {case.call}" if case.step else "none"),
            ("fault", case.story),
            ("end", self.end),
            *(("wrong", finding) for finding in self.findings),
        ]
        lines = [f"{case.name}: {_count(len(self.findings))} wrong"]
        lines += [_row(name, text) for name, text in rows]
        lines += [
            f"  timeline, in virtual seconds (seed {self.seed})",
            textwrap.indent(_shortened(self.timeline), "  "),
        ]
        if replay:
            lines.append(_row("replay", replay))
        return "\n".join(lines)


class FaultMatrixFailure(AssertionError):
    """A world that a fault leaves inconsistent. The text tells step, fault, timeline and what was wrong."""


def letter_text(letter: saga_pb2.DeadLetter) -> str:
    """A dead letter in words."""
    reason = saga_pb2.DeadLetter.Reason.Name(letter.reason).removeprefix("REASON_")
    direction = saga_pb2.Direction.Name(letter.direction).removeprefix("DIRECTION_").lower()
    where = f"{letter.step}/{direction}" if letter.step else "the saga"
    return f"{where} waits for a person: {reason}" + (f" ({letter.last_error})" if letter.last_error else "")


def state_text(saga: saga_pb2.Saga) -> str:
    """A saga's state by its name."""
    return saga_pb2.Saga.State.Name(saga.state).removeprefix("STATE_")


def check_text(error: BaseException) -> str:
    """What the author's check said, and where: without a word of its own, the line itself."""
    frames = traceback.extract_tb(error.__traceback__)
    here = next((frame for frame in reversed(frames) if frame.name == "check"), frames[-1] if frames else None)
    said = str(error) or (here.line if here is not None else "") or "no word"
    place = f"\n{_relative(here.filename)}:{here.lineno}, in {here.name}" if here is not None else ""
    return f"the author's check: {type(error).__name__}: {said}{place}"


def _shortened(timeline: str) -> str:
    """The beginning and the end of a long timeline: what is repeated for hours stands in its middle."""
    lines = timeline.splitlines()
    if len(lines) <= FIRST_LINES + LAST_LINES:
        return "\n".join(lines)
    left_out = f"{'…':>12}  {len(lines) - FIRST_LINES - LAST_LINES} more"
    return "\n".join((*lines[:FIRST_LINES], left_out, *lines[-LAST_LINES:]))


def _row(name: str, text: str) -> str:
    first, *rest = text.splitlines() or [""]
    return "\n".join([f"  {name:<7} {first}", *(f"          {line}" for line in rest)])


def _count(number: int) -> str:
    return "one thing is" if number == 1 else f"{number} things are"


def _relative(file: str) -> str:
    path, here = Path(file), Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)
