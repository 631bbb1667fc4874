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
from amends.testing import catalogue, faults
from amends.testing.faults import ACTION, COMPENSATION, LOOKUP
from amends.v1 import annotations_pb2

if TYPE_CHECKING:
    from collections.abc import Iterator

    from amends.testing.catalogue import FaultKind
    from amends.testing.faults import Trouble

# `Any`: the messages of the steps are of no interest here.
AnyStep: TypeAlias = Step[Any, Any]
AnySaga: TypeAlias = Saga[Any, Any]
Made: TypeAlias = "Callable[[], tuple[Trouble, ...]]"
"""Makes troubles anew."""

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
    troubles: Made

    @property
    def name(self) -> str:
        """The case's name, such as "order/reserve/action/reply-lost"."""
        return "/".join(part for part in (self.saga, self.step, self.call, self.fault) if part)

    def __str__(self) -> str:
        return self.name


def cases_of(saga: AnySaga) -> tuple[FaultCase, ...]:
    """Every case of a saga, in the order of its steps.

    The first one has no fault: what doesn't hold there need not be looked for elsewhere.
    """
    return tuple(_Cases(saga).all())


class _Cases:
    """Makes the cases of one saga."""

    def __init__(self, saga: AnySaga) -> None:
        self._saga = saga
        self._quick = saga.timeout is not None and saga.timeout.total_seconds() < QUICK_S

    def all(self) -> Iterator[FaultCase]:
        """All of them."""
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
                yield from self._late_actions(step)
                yield from self._compensations(step)
            if self._has_lookup(step) and self._can_go_back(step):
                yield from self._lookups(step)
        for step in self._saga.steps_once_compensated:
            yield from self._once_compensated(step)

    def _actions(self, step: AnyStep) -> Iterator[FaultCase]:
        in_doubt = EITHER if self._can_go_back(step) else FORWARD
        for fault in catalogue.TRANSIENT:
            yield self._case(step, ACTION, fault, FORWARD if self._goes_over(step, fault) else EITHER)
        yield self._case(step, ACTION, catalogue.LOST_THEN_REJECTED, FORWARD if self._is_patient(step) else EITHER)
        for fault in (*catalogue.UNSETTLED, *catalogue.ABORTED):
            yield self._case(step, ACTION, fault, in_doubt)
        for fault in catalogue.REFUSED:
            # A step whose codes are its own may hear no refusal in that one.
            refused = BACK if step.action.options.codes is None else EITHER
            yield self._case(step, ACTION, fault, refused if self._can_go_back(step) else FORWARD)
        for fault in catalogue.LED_BACK:
            is_pivot = step.kind is StepKind.PIVOT
            yield self._case(step, ACTION, fault, BACK if self._can_go_back(step) and not is_pivot else FORWARD)
        if step.kind is StepKind.RETRIABLE:
            yield self._case(step, ACTION, catalogue.REFUSED_UNTIL_PARKED, FORWARD)

    def _late_actions(self, step: AnyStep) -> Iterator[FaultCase]:
        """What arrives when its step is being undone, or was."""
        rolled_back = self._rolled_back(step)
        yield self._case(step, ACTION, catalogue.DUPLICATE_AFTER_UNDO, BACK, before=rolled_back)
        if not self._has_lookup(step):
            yield self._case(step, ACTION, catalogue.LATE_BESIDE_UNDO, EITHER)

    def _compensations(self, step: AnyStep) -> Iterator[FaultCase]:
        rolled_back, never_arrives = self._rolled_back(step), _never_arrives(step)
        others = (catalogue.LATE_UNDO, *catalogue.UNTIL_PARKED, catalogue.ABORTED_DURING)
        for fault in (*catalogue.TRANSIENT, *others):
            yield self._case(step, COMPENSATION, fault, BACK, before=rolled_back)
        if self._has_lookup(step):
            return  # which says that there is nothing to undo
        of_nothing = (*catalogue.LOST, *catalogue.COPIED, *catalogue.KILLED, catalogue.REFUSED_UNTIL_PARKED)
        for fault in of_nothing:
            yield self._case(step, COMPENSATION, fault, EITHER, before=never_arrives, call="null-compensation")

    def _lookups(self, step: AnyStep) -> Iterator[FaultCase]:
        never_answers, never_arrives = _never_answers(step), _never_arrives(step)
        for fault in (*catalogue.LOST, *catalogue.COPIED, catalogue.DOWN, *catalogue.KILLED):
            yield self._case(step, LOOKUP, fault, EITHER, before=never_answers)
        for fault in (*catalogue.LOST, *catalogue.COPIED, *catalogue.KILLED):
            yield self._case(step, LOOKUP, fault, EITHER, before=never_arrives, call="lookup-of-nothing")

    def _once_compensated(self, step: AnyStep) -> Iterator[FaultCase]:
        refusing = next((each for each in self._saga.steps if self._can_go_back(each)), None)
        if refusing is not None:
            for fault in (*catalogue.TRANSIENT, *catalogue.UNTIL_PARKED):
                yield self._case(step, ACTION, fault, BACK, before=_refuses(refusing))

    def _rolled_back(self, step: AnyStep) -> Made:
        """Leads the saga back once the step has happened: the last step that may say no does, or the step itself."""
        later = [each for each in self._saga.steps if step.name in ancestors_of(each.after)]
        refusing = [each for each in later if self._can_go_back(each)]
        return _refuses(refusing[-1]) if refusing else lambda: (faults.SoftAbort(step.name, for_good=True),)

    def _can_go_back(self, step: AnyStep) -> bool:
        """Whether the saga can still roll back when this step is called."""
        if step.begins_once_compensated or step.kind is StepKind.RETRIABLE:
            return False
        passed = {each.name for each in self._saga.steps if each.kind in (StepKind.PIVOT, StepKind.RETRIABLE)}
        return not passed & ancestors_of(step.after)

    def _goes_over(self, step: AnyStep, fault: FaultKind) -> bool:
        """Whether this fault leads no saga back: what is lost with the write before an intent is also the record of the
        steps before it.
        """
        concerned = (step, *step.after) if fault is catalogue.KILLED_BEFORE_INTENT else (step,)
        return all(self._is_patient(each) for each in concerned)

    def _is_patient(self, step: AnyStep) -> bool:
        """Whether a fault that goes over by itself leads no saga back at this step."""
        if not self._can_go_back(step):
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
        fault: FaultKind,
        ends: frozenset[str],
        *,
        before: Made = tuple,
        call: str = "",
    ) -> FaultCase:
        """A case of a call; `before` makes what leads the saga there, `call` is its name where that is no direction."""
        return FaultCase(
            saga=self._saga.name,
            step=step.name,
            call=call or direction,
            fault=fault.name,
            story=fault.story,
            ends=ends,
            troubles=lambda: (*fault.troubles(step.name, direction), *before()),
        )


def _refuses(step: AnyStep) -> Made:
    return lambda: (faults.Refused(step.name, sealed=True, for_good=True),)


def _never_arrives(step: AnyStep) -> Made:
    return lambda: (faults.RequestLate(step.name, for_good=True),)


def _never_answers(step: AnyStep) -> Made:
    return lambda: (faults.ReplyLost(step.name, for_good=True),)
