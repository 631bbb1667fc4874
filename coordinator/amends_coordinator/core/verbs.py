"""What people do to a saga: abort it, retry or resolve what is parked, have it tried now, terminate it.

A verb is decided by whoever receives it, not by the node that drives the saga, so it never makes a call itself: it only
writes down what may be done next, and the driver goes on from there. Each acts on the saga as it saw it; the ledger
applies it only if nobody wrote the saga in between.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from amends_coordinator.core.states import Resolution, Word

if TYPE_CHECKING:
    from amends_coordinator.core.events import Moment
    from amends_coordinator.core.ids import DeadLetterId


class Refusal(Word):
    """Why a verb is refused; nothing was changed."""

    LETTER_NOT_FOUND = "the saga has no such dead letter"
    LETTER_CLOSED = "the dead letter is closed already"
    NOTHING_TO_REPEAT = "there is no call that could be repeated; resolve the dead letter"
    OUT_OF_ORDER = "calls that have to come first are not settled yet"
    KEY_EXPIRED = "the participant may have forgotten the key by now: a repeated call could do it twice"
    RESOLUTION_REFUSED = "this dead letter can't be resolved like that"
    RESPONSE_REQUIRED = "a later call reads the response, so it has to be given"
    PAST_POINT_OF_NO_RETURN = "the saga is past its point of no return and only goes forward"
    SAGA_ENDED = "the saga has ended"
    ACTION_HAPPENED = "the participant says that the action happened"


class VerbRefusedError(Exception):
    """A verb can't be carried out on the saga as it stands. `refusal` says why; the text says what to do."""

    def __init__(self, refusal: Refusal, message: str) -> None:
        super().__init__(message)
        self.refusal = refusal


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryDeadLetter:
    """Give what is parked a fresh budget. `forced`: also where the participant may have forgotten the key."""

    at: Moment
    letter: DeadLetterId
    forced: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AskFirst:
    """Have the lookup of a parked action asked once before a person's word about it is taken."""

    at: Moment
    letter: DeadLetterId


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolveDeadLetter:
    """Settle what is parked by what `person` found. `response`: the action's, where it happened and something reads
    it.
    """

    at: Moment
    letter: DeadLetterId
    resolution: Resolution
    person: str
    response: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunNow:
    """Try now whatever waits for its time."""

    at: Moment


@dataclass(frozen=True, slots=True, kw_only=True)
class Terminate:
    """Stop the saga where it is: from now on only what a person retries is called."""

    at: Moment
    reason: str


Verb: TypeAlias = RetryDeadLetter | AskFirst | ResolveDeadLetter | RunNow | Terminate
