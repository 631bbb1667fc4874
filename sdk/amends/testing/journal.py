"""What happened in a rehearsal, in its order, as values and as a timeline for people."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator

    from amends.testing.seam import CallSite, WriteSite
    from amends_coordinator.bootstrap import Answer


@dataclass(frozen=True, slots=True)
class Called:
    """The coordinator makes a call."""

    site: CallSite

    def __str__(self) -> str:
        return f"call    {self.site} at {self.site.participant} ({self.site.method})"


@dataclass(frozen=True, slots=True)
class Delivered:
    """The call reaches the participant."""

    site: CallSite

    def __str__(self) -> str:
        return f"arrives {self.site}"


@dataclass(frozen=True, slots=True)
class Replied:
    """The participant's answer, as a coordinator reads it. None: the call was cancelled there."""

    site: CallSite
    answer: Answer | None

    def __str__(self) -> str:
        return f"reply   {self.site} {_said(self.answer, 'cancelled')}"


@dataclass(frozen=True, slots=True)
class Heard:
    """What the coordinator hears. None: it gave the call up, or was killed."""

    site: CallSite
    answer: Answer | None

    def __str__(self) -> str:
        return f"heard   {self.site} {_said(self.answer, 'nothing')}"


@dataclass(frozen=True, slots=True)
class Died:
    """The participant's process died just before it would have made true what it did for this call."""

    site: CallSite

    def __str__(self) -> str:
        return f"died    {self.site.participant}, before it could commit {self.site}"


@dataclass(frozen=True, slots=True)
class Written:
    """A write became durable."""

    site: WriteSite

    def __str__(self) -> str:
        return f"write   {self.site}"


@dataclass(frozen=True, slots=True)
class CoordinatorStarted:
    """An incarnation took the ledger."""

    node: str

    def __str__(self) -> str:
        return f"start   coordinator {self.node}"


@dataclass(frozen=True, slots=True)
class CoordinatorKilled:
    """An incarnation was killed."""

    node: str

    def __str__(self) -> str:
        return f"kill    coordinator {self.node}"


@dataclass(frozen=True, slots=True)
class ParticipantRestarted:
    """A process of a participant is gone, and another one is there."""

    participant: str

    def __str__(self) -> str:
        return f"start   {self.participant}, anew"


@dataclass(frozen=True, slots=True)
class CoordinatorFailed:
    """A fault of the coordinator itself, which is never to happen. No `saga_id`: it is gone, and no other one comes."""

    saga_id: str
    error: str

    def __str__(self) -> str:
        return f"FAULT   the coordinator failed{f' on {self.saga_id}' if self.saga_id else ''}: {self.error}"


@dataclass(frozen=True, slots=True)
class Noted:
    """What a fault or a test has to say."""

    text: str

    def __str__(self) -> str:
        return f"note    {self.text}"


Happening: TypeAlias = (
    Called
    | Delivered
    | Replied
    | Heard
    | Died
    | Written
    | CoordinatorStarted
    | CoordinatorKilled
    | CoordinatorFailed
    | ParticipantRestarted
    | Noted
)


OfSaga = Called | Delivered | Replied | Heard | Died | Written
"""What happens to one saga."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Something that happened, so many virtual seconds after the run began."""

    time_s: float
    what: Happening


@dataclass(slots=True)
class Journal:
    """Everything that happened so far."""

    entries: list[Entry] = field(default_factory=list[Entry])

    def timeline(self) -> str:
        """One line for each, without those that follow from the line before; with the saga's id where it matters."""
        sagas = {entry.what.site.saga_id for entry in self.entries if isinstance(entry.what, OfSaga)}
        return "\n".join(_line(entry, several=len(sagas) > 1) for entry in self._worth_telling())

    def _worth_telling(self) -> Iterator[Entry]:
        """A call that is delivered at once, and an answer that is heard as it was given, take one line each."""
        before: Entry | None = None
        for entry in self.entries:
            if before is None or before.time_s != entry.time_s or not _follows(before.what, entry.what):
                yield entry
            before = entry


def _line(entry: Entry, *, several: bool) -> str:
    what = entry.what
    saga = f"{what.site.saga_id}  " if several and isinstance(what, OfSaga) else ""
    return f"{entry.time_s:12.6f}  {saga}{what}"


def _follows(before: Happening, what: Happening) -> bool:
    if isinstance(before, Called) and isinstance(what, Delivered):
        return before.site == what.site
    return isinstance(before, Replied) and isinstance(what, Heard) and before == Replied(what.site, what.answer)


def _said(answer: Answer | None, nothing: str) -> str:
    if answer is None:
        return nothing
    words = [answer.outcome.value, answer.status_code]
    if answer.reason:
        words.append(answer.reason)
    if answer.abort_reason is not None:
        words.append(f"and abort: {answer.abort_reason}")
    if answer.message:
        words.append(f'"{answer.message}"')
    return " ".join(word for word in words if word)
