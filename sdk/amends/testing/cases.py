"""The cases of a saga's fault matrix: every call that it can make, and everything that can go wrong there.

A case is data: its name, what goes wrong in a sentence, the troubles that make it go wrong, and the ends that the saga
may come to then. What a saga can do is read from its description, so that cases can be listed without running any.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from amends.saga import Saga
from amends.steps import Step, StepKind, ancestors_of
from amends.testing import faults
from amends.testing.faults import ACTION, COMPENSATION, LOOKUP, Moment, Trouble
from amends.v1 import annotations_pb2

if TYPE_CHECKING:
    from collections.abc import Iterator

# `Any`: the messages of the steps are of no interest here.
AnyStep: TypeAlias = Step[Any, Any]
AnySaga: TypeAlias = Saga[Any, Any]
Troubles: TypeAlias = Callable[[str, str], "tuple[Trouble, ...]"]
"""Makes the troubles of a case anew, given the step and the direction."""

COMMITTED, COMPENSATED = "COMMITTED", "COMPENSATED"
FORWARD, BACK, EITHER = frozenset({COMMITTED}), frozenset({COMPENSATED}), frozenset({COMMITTED, COMPENSATED})

QUICK_S = 60.0
"""A saga with a shorter timeout may roll back over a fault that others only wait for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultCase:
    """One fault at one call of a saga.

    Attributes:
        saga: the saga's name.
        step: the step at which something goes wrong; "" where nothing does.
        call: which of its calls: "action", "compensation" (also "null-compensation"), "lookup" ("lookup-of-nothing").
        fault: the fault's name.
        story: what goes wrong, in a sentence.
        ends: the states in which the saga may end.
    """

    saga: str
    step: str
    call: str
    fault: str
    story: str
    ends: frozenset[str]
    troubles: Callable[[], tuple[Trouble, ...]]

    @property
    def name(self) -> str:
        """The case's name, such as "order/reserve/action/reply-lost"."""
        return "/".join(part for part in (self.saga, self.step, self.call, self.fault) if part)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault that can strike at any call of a direction: its name, its story, and what plays it.

    `transient`: it goes over by itself or is only about the coordinator, so it leads no saga back.
    """

    name: str
    story: str
    troubles: Troubles
    transient: bool = True


def _one(make: Callable[[str, str], Trouble]) -> Troubles:
    return lambda step, direction: (make(step, direction),)


def _for_good(make: Callable[..., Trouble]) -> Troubles:
    return lambda step, direction: (make(step, direction, for_good=True),)


def _killed(moment: Moment) -> Troubles:
    return lambda step, direction: (faults.Killed(step, direction, moment=moment),)


_LOST = (
    Fault("request-lost", "the first request never arrives", _one(faults.RequestLost)),
    Fault("reply-lost", "the work is done, and the first reply is lost", _one(faults.ReplyLost)),
    Fault(
        "reply-late", "the work is done, and the first reply comes after the call's deadline", _one(faults.ReplyLate)
    ),
    Fault("garbage-reply", "the work is done, and the first reply can't be read", _one(faults.GarbageReply)),
)
_COPIED = (
    Fault("duplicate-at-once", "two copies of the request arrive at the same moment", _one(faults.DuplicateAtOnce)),
    Fault("duplicate-later", "a copy of the request arrives after the saga's end", _one(faults.DuplicateLater)),
)
_DOWN = Fault(
    "down-for-a-while",
    "nobody is there to be called for 20 s",
    lambda step, direction: (faults.NotSent(step, direction, down_s=20.0),),
)
_KILLED = tuple(
    Fault(name, f"the coordinator is killed {when}", troubles)
    for name, when, troubles in (
        ("killed-before-intent", Moment.BEFORE_INTENT.value, _killed(Moment.BEFORE_INTENT)),
        ("killed-after-intent", Moment.AFTER_INTENT.value, _killed(Moment.AFTER_INTENT)),
        ("killed-after-effect", "when the work is done, before the reply arrives", _one(faults.KilledAfterEffect)),
        ("killed-before-record", Moment.BEFORE_RECORD.value, _killed(Moment.BEFORE_RECORD)),
    )
)
_DIES = Fault(
    "participant-dies-before-commit",
    "the participant's process dies when its handler has returned, before that is committed",
    _one(faults.DiesBeforeCommit),
)
TRANSIENT = (*_LOST, *_COPIED, _DOWN, *_KILLED, _DIES)
"""What every call must survive as if nothing had been."""

UNSETTLED = (
    Fault("request-always-lost", "no request ever arrives", _for_good(faults.RequestLost)),
    Fault("reply-always-lost", "the work is done, and every reply is lost", _for_good(faults.ReplyLost)),
    Fault(
        "late-arrival", "no request arrives in time; the first does after the saga's end", _for_good(faults.RequestLate)
    ),
    Fault(
        "participant-always-dies",
        "the participant's process dies before every commit",
        _for_good(faults.DiesBeforeCommit),
    ),
)
"""After these nobody knows whether the action happened, until it is looked up, undone or settled by a person."""

REFUSED = (
    Fault("rejected", "the participant says no", _one(faults.Refused)),
    Fault(
        "sealed-rejection",
        "the participant says no, and promises to keep to that",
        lambda step, direction: (faults.Refused(step, direction, sealed=True),),
    ),
    Fault(
        "soft-abort",
        "the work is done, and the participant asks for the saga to be rolled back",
        _one(faults.SoftAbort),
    ),
    Fault(
        "down-until-timeout",
        "nobody is there to be called until the saga's timeout is over",
        _one(faults.NotSent),
    ),
    Fault(
        "timeout-during",
        "the work is done, and the saga's timeout is over before the reply arrives",
        _one(faults.TimeoutDuring),
    ),
)
"""What leads back before the point of no return, and is waited for or told of behind it."""

ABORTED = (
    Fault("abort-before", "the saga is aborted just before the request arrives", _one(faults.AbortBefore)),
    Fault(
        "abort-during", "the saga is aborted when the work is done, before the reply arrives", _one(faults.AbortDuring)
    ),
    Fault("abort-after", "the saga is aborted as soon as the answer is recorded", _one(faults.AbortAfter)),
)

LOST_THEN_REJECTED = Fault(
    "lost-then-rejected",
    "the work is done, the reply is lost, and the next attempt is answered with a no that proves nothing",
    _one(faults.LostThenRefused),
)

UNTIL_PARKED = (
    Fault("refused-until-parked", "the participant says no until a person is called", _for_good(faults.Refused)),
    Fault("request-lost-until-parked", "no request arrives until a person is called", _for_good(faults.RequestLost)),
    Fault(
        "reply-lost-until-parked",
        "the work is done, and every reply is lost until a person is called",
        _for_good(faults.ReplyLost),
    ),
)

LATE_COMPENSATION = Fault(
    "late-arrival",
    "the first request is held back and arrives after the saga's end",
    lambda step, direction: (faults.RequestLateOnce(step, direction),),
)
ABORT_WHILE_UNDOING = ABORTED[1]


def cases_of(saga: AnySaga) -> tuple[FaultCase, ...]:
    """Every case of a saga, in the order of its steps.

    The first one has no fault: what doesn't hold there need not be looked for elsewhere.
    """
    return tuple(_Cases(saga).all())


class _Cases:
    def __init__(self, saga: AnySaga) -> None:
        self._saga = saga
        self._quick = saga.timeout is not None and saga.timeout.total_seconds() < QUICK_S

    def all(self) -> Iterator[FaultCase]:
        yield FaultCase(
            saga=self._saga.name,
            step="",
            call="",
            fault="no-fault",
            story="nothing goes wrong",
            ends=FORWARD,
            troubles=tuple,
        )
        for step in self._saga.steps:
            yield from self._actions(step)
            if step.kind is StepKind.COMPENSATABLE:
                yield from self._compensations(step)
            if self._has_lookup(step) and self._before_the_point(step):
                yield from self._lookups(step)
        for step in self._saga.steps_once_compensated:
            yield from self._once_compensated(step)

    # ---- actions ------------------------------------------------------------------------------------------------

    def _actions(self, step: AnyStep) -> Iterator[FaultCase]:
        can_go_back = self._before_the_point(step)
        for fault in TRANSIENT:
            yield self._case(step, ACTION, fault, FORWARD if self._goes_over(step, fault) else EITHER)
        yield self._case(step, ACTION, LOST_THEN_REJECTED, FORWARD if self._patient(step) else EITHER)
        for fault in UNSETTLED:
            yield self._case(step, ACTION, fault, EITHER if can_go_back else FORWARD)
        for fault in REFUSED:
            yield self._case(step, ACTION, fault, self._after_refusal(step, fault))
        for fault in ABORTED:
            yield self._case(step, ACTION, fault, EITHER if can_go_back else FORWARD)
        if step.kind is StepKind.RETRIABLE:
            yield self._case(step, ACTION, UNTIL_PARKED[0], FORWARD)
        if step.kind is StepKind.COMPENSATABLE:
            yield from self._late_actions(step)

    def _late_actions(self, step: AnyStep) -> Iterator[FaultCase]:
        """What arrives when its step is already being undone, or was."""
        yield self._case(
            step,
            ACTION,
            Fault(
                "duplicate-after-undo",
                "a copy of the request arrives when the saga has been rolled back",
                lambda name, direction: (faults.DuplicateLater(name, direction), *self._rolled_back(step)),
            ),
            BACK,
        )
        if not self._has_lookup(step):
            yield self._case(
                step,
                ACTION,
                Fault(
                    "late-arrival-beside-undo",
                    "no request arrives in time; the first does at the same moment as its compensation",
                    lambda name, direction: (
                        faults.RequestLate(name, direction, for_good=True),
                        faults.ArrivesBesideUndo(name, COMPENSATION),
                    ),
                ),
                EITHER,
            )

    def _after_refusal(self, step: AnyStep, fault: Fault) -> frozenset[str]:
        if not self._before_the_point(step):
            return FORWARD
        if step.kind is StepKind.PIVOT and fault.name not in ("rejected", "sealed-rejection"):
            return FORWARD  # it is the point of no return itself: only its own no leads back from there
        if step.action.options.codes is not None and "reject" in fault.name:
            return EITHER
        return BACK

    # ---- compensations ------------------------------------------------------------------------------------------

    def _compensations(self, step: AnyStep) -> Iterator[FaultCase]:
        provoked = (*TRANSIENT, LATE_COMPENSATION, *UNTIL_PARKED, ABORT_WHILE_UNDOING)
        for fault in provoked:
            yield self._case(step, COMPENSATION, fault, BACK, before=lambda: self._rolled_back(step))
        if not self._has_lookup(step):
            for fault in (*_LOST, *_COPIED, *_KILLED, UNTIL_PARKED[0]):
                yield self._case(
                    step, COMPENSATION, fault, EITHER, before=lambda: _never_arrives(step), name="null-compensation"
                )

    def _rolled_back(self, step: AnyStep) -> tuple[Trouble, ...]:
        """Leads the saga back once the step has happened: the last step that may say no does, or the step itself."""
        later = [each for each in self._saga.steps if step.name in ancestors_of(each.after)]
        refusing = [each for each in later if self._before_the_point(each)]
        if refusing:
            return (faults.Refused(refusing[-1].name, sealed=True, for_good=True),)
        return (faults.SoftAbort(step.name, for_good=True),)

    # ---- lookups ------------------------------------------------------------------------------------------------

    def _lookups(self, step: AnyStep) -> Iterator[FaultCase]:
        for fault in (*_LOST, *_COPIED, _DOWN, *_KILLED):
            yield self._case(step, LOOKUP, fault, EITHER, before=lambda: _never_answers(step))
        for fault in (*_LOST, *_COPIED, *_KILLED):
            yield self._case(step, LOOKUP, fault, EITHER, before=lambda: _never_arrives(step), name="lookup-of-nothing")

    # ---- on_compensated -----------------------------------------------------------------------------------------

    def _once_compensated(self, step: AnyStep) -> Iterator[FaultCase]:
        first = next((each for each in self._saga.steps if self._before_the_point(each)), None)
        if first is None:
            return
        for fault in (*TRANSIENT, *UNTIL_PARKED):
            yield self._case(
                step, ACTION, fault, BACK, before=lambda: (faults.Refused(first.name, sealed=True, for_good=True),)
            )

    # ---- what is known of a step --------------------------------------------------------------------------------

    def _before_the_point(self, step: AnyStep) -> bool:
        """Whether the saga can still roll back when this step is called."""
        if step.begins_once_compensated or step.kind is StepKind.RETRIABLE:
            return False
        passed = {each.name for each in self._saga.steps if each.kind in (StepKind.PIVOT, StepKind.RETRIABLE)}
        return not passed & ancestors_of(step.after)

    def _goes_over(self, step: AnyStep, fault: Fault) -> bool:
        """Whether this fault leads no saga back: what is lost with the write before an intent is also the record of the
        steps before it.
        """
        concerned = (step, *step.after) if fault.name == "killed-before-intent" else (step,)
        return all(self._patient(each) for each in concerned)

    def _patient(self, step: AnyStep) -> bool:
        """Whether a fault that goes over by itself leads no saga back at this step."""
        if not self._before_the_point(step):
            return True
        return not (self._quick or step.options.at_most_once or step.action.options.retry is not None)

    def _has_lookup(self, step: AnyStep) -> bool:
        if step.kind is StepKind.READ_ONLY or step.begins_once_compensated:
            return False
        options = step.action.call.method.descriptor.GetOptions()
        return step.lookup is not None or bool(options.Extensions[annotations_pb2.step].lookup)

    def _case(
        self,
        step: AnyStep,
        direction: str,
        fault: Fault,
        ends: frozenset[str],
        *,
        before: Callable[[], tuple[Trouble, ...]] = tuple,
        name: str = "",
    ) -> FaultCase:
        return FaultCase(
            saga=self._saga.name,
            step=step.name,
            call=name or direction,
            fault=fault.name,
            story=fault.story,
            ends=ends,
            troubles=lambda: (*fault.troubles(step.name, direction), *before()),
        )


def _never_arrives(step: AnyStep) -> tuple[Trouble, ...]:
    return (faults.RequestLate(step.name, ACTION, for_good=True),)


def _never_answers(step: AnyStep) -> tuple[Trouble, ...]:
    return (faults.ReplyLost(step.name, ACTION, for_good=True),)
