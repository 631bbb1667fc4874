"""The faults that a matrix knows: what each is called, what goes wrong in it, and the troubles that play it.

docs/testing.md lists them, drawn from here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from amends.testing import faults
from amends.testing.faults import Moment, Trouble

Troubles: TypeAlias = Callable[[str, str], tuple[Trouble, ...]]
"""Makes the troubles of a fault anew, given the step's name and the direction of the call."""


@dataclass(frozen=True, slots=True)
class FaultKind:
    """A fault by its name, what goes wrong in a sentence, and what plays it at a call of a step."""

    name: str
    story: str
    troubles: Troubles


def _one(make: Callable[[str, str], Trouble]) -> Troubles:
    return lambda step, direction: (make(step, direction),)


def _for_good(make: Callable[..., Trouble]) -> Troubles:
    return lambda step, direction: (make(step, direction, for_good=True),)


def _killed(moment: Moment) -> Troubles:
    return lambda step, direction: (faults.Killed(step, direction, moment=moment),)


LOST = (
    FaultKind("request-lost", "the first request never arrives", _one(faults.RequestLost)),
    FaultKind("reply-lost", "the work is done, and the first reply is lost", _one(faults.ReplyLost)),
    FaultKind(
        "reply-late", "the work is done, and the first reply comes after the call's deadline", _one(faults.ReplyLate)
    ),
    FaultKind("garbage-reply", "the work is done, and the first reply can't be read", _one(faults.GarbageReply)),
)
COPIED = (
    FaultKind("duplicate-at-once", "two copies of the request arrive at the same moment", _one(faults.DuplicateAtOnce)),
    FaultKind("duplicate-later", "a copy of the request arrives after the saga's end", _one(faults.DuplicateLater)),
)
DOWN = FaultKind(
    "down-for-a-while",
    "nobody is there to be called for 20 s",
    lambda step, direction: (faults.NotSent(step, direction, down_s=20.0),),
)
KILLED_BEFORE_INTENT = FaultKind(
    "killed-before-intent",
    "the coordinator is killed before the write that announces the call",
    _killed(Moment.BEFORE_INTENT),
)
KILLED = (
    KILLED_BEFORE_INTENT,
    FaultKind(
        "killed-after-intent",
        "the coordinator is killed after the write that announces the call",
        _killed(Moment.AFTER_INTENT),
    ),
    FaultKind(
        "killed-after-effect",
        "the coordinator is killed when the work is done, before the reply arrives",
        _one(faults.KilledAfterEffect),
    ),
    FaultKind(
        "killed-before-record",
        "the coordinator is killed before the write that records the answer",
        _killed(Moment.BEFORE_RECORD),
    ),
)
DIES = FaultKind(
    "participant-dies-before-commit",
    "the participant's process dies when its handler has returned, before that is committed",
    _one(faults.DiesBeforeCommit),
)
DIES_BEFORE_REPLY = FaultKind(
    "participant-dies-before-reply",
    "the work is done, and the participant's process dies before it replies; what it had in memory is gone",
    _one(faults.DiesBeforeReply),
)
TRANSIENT = (*LOST, *COPIED, DOWN, *KILLED, DIES, DIES_BEFORE_REPLY)
"""What every call must survive as if nothing had been."""

UNSETTLED = (
    FaultKind("request-always-lost", "no request ever arrives", _for_good(faults.RequestLost)),
    FaultKind("reply-always-lost", "the work is done, and every reply is lost", _for_good(faults.ReplyLost)),
    FaultKind(
        "late-arrival", "no request arrives in time; the first does after the saga's end", _for_good(faults.RequestLate)
    ),
    FaultKind(
        "participant-always-dies",
        "the participant's process dies before every commit",
        _for_good(faults.DiesBeforeCommit),
    ),
)
"""After these nobody knows whether the action happened, until it is looked up, undone or settled by a person."""

REFUSED = (
    FaultKind("rejected", "the participant says no", _one(faults.Refused)),
    FaultKind(
        "sealed-rejection",
        "the participant says no, and promises to keep to that",
        lambda step, direction: (faults.Refused(step, direction, sealed=True),),
    ),
)
"""A clear no, which leads back before the point of no return; behind it the call is repeated."""

LED_BACK = (
    FaultKind(
        "soft-abort",
        "the work is done, and the participant asks for the saga to be rolled back",
        _one(faults.SoftAbort),
    ),
    FaultKind(
        "down-until-timeout",
        "nobody is there to be called until the saga's timeout is over",
        _one(faults.NotSent),
    ),
    FaultKind(
        "timeout-during",
        "the work is done, and the saga's timeout is over before the reply arrives",
        _one(faults.TimeoutDuring),
    ),
)
"""What leads back before the point of no return; at it and behind it a person is told, and the saga goes on."""

ABORTED_DURING = FaultKind(
    "abort-during", "the saga is aborted when the work is done, before the reply arrives", _one(faults.AbortDuring)
)
ABORTED = (
    FaultKind("abort-before", "the saga is aborted just before the request arrives", _one(faults.AbortBefore)),
    ABORTED_DURING,
    FaultKind("abort-after", "the saga is aborted as soon as the answer is recorded", _one(faults.AbortAfter)),
)

LOST_THEN_REJECTED = FaultKind(
    "lost-then-rejected",
    "the work is done, the reply is lost, and the next attempt is answered with a no that proves nothing",
    _one(faults.LostThenRefused),
)

REFUSED_UNTIL_PARKED = FaultKind(
    "refused-until-parked", "the participant says no until a person is called", _for_good(faults.Refused)
)
UNTIL_PARKED = (
    REFUSED_UNTIL_PARKED,
    FaultKind(
        "request-lost-until-parked", "no request arrives until a person is called", _for_good(faults.RequestLost)
    ),
    FaultKind(
        "reply-lost-until-parked",
        "the work is done, and every reply is lost until a person is called",
        _for_good(faults.ReplyLost),
    ),
)

DUPLICATE_AFTER_UNDO = FaultKind(
    "duplicate-after-undo",
    "a copy of the request arrives when the saga has been rolled back",
    _one(faults.DuplicateLater),
)
LATE_BESIDE_UNDO = FaultKind(
    "late-arrival-beside-undo",
    "no request arrives in time; the first does at the same moment as its compensation",
    lambda step, direction: (
        faults.RequestLate(step, direction, for_good=True),
        faults.ArrivesBesideUndo(step, faults.COMPENSATION),
    ),
)
LATE_UNDO = FaultKind(
    "late-arrival",
    "the first request is held back and arrives after the saga's end",
    lambda step, direction: (faults.RequestLateOnce(step, direction),),
)
