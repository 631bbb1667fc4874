"""Says in words what happens to a step when nobody knows whether its action happened, in the order in which it does.

The rules are the core's (`core.settle`); the words are those of docs/semantics.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from amends_coordinator.core.states import OnUnknown, StepKind
from amends_coordinator.definitions.spans import readable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from amends_coordinator.core.plan import CallPlan, Plan, StepPlan


def when_unknown(step: StepPlan, plan: Plan) -> Iterator[str]:
    """One sentence for each thing that is tried, the last one for what is decided when nothing helped."""
    if step.name in plan.forward_only:
        yield from _forward_only(step, plan)
        return
    yield _repeated(step)
    if step.kind is StepKind.READ_ONLY:
        yield "else it counts as refused, and the saga rolls back: there is nothing to undo"
        return
    if step.lookup is not None:
        yield _looked_up(step, step.lookup)
    yield _decided(step)


def _forward_only(step: StepPlan, plan: Plan) -> Iterator[str]:
    retry, window_us = step.action.retry, step.action.idempotency_window_us
    remembered = f", at most {readable(window_us)} after the first call" if window_us else ""
    yield f"repeated with the same key for {readable(retry.total_timeout_us)} of trying{remembered}"
    told_afterwards = any(each.name == step.name for each in plan.on_compensated)
    yield f"else parked for a person; the saga stays {'COMPENSATED' if told_afterwards else 'RUNNING'}"


def _repeated(step: StepPlan) -> str:
    if step.at_most_once:
        return "not repeated: it is to be called at most once"
    retry, window_us = step.action.retry, step.action.idempotency_window_us
    remembered = f", at most {readable(window_us)} after the first call" if window_us else ""
    return f"repeated with the same key for {readable(retry.total_timeout_us)} of trying{remembered}"


def _looked_up(step: StepPlan, lookup: CallPlan) -> str:
    sentence = (
        f"then {method_name(lookup)} is asked, for {readable(lookup.retry.total_timeout_us)}: OK says that it happened"
    )
    if step.lookup_seals:
        sentence += ", a sealed NOT_FOUND that it never will"
    if step.settle_delay_us is not None:
        late_us = step.action.timeout_us + step.settle_delay_us
        which = "another one" if step.lookup_seals else "NOT_FOUND"
        return (
            f"{sentence}, {which} that it did not if it is asked {readable(late_us)} after the last attempt began"
            " (the saga is then unproven)"
        )
    return sentence if step.lookup_seals else f"{sentence}, NOT_FOUND proves nothing unless it is sealed"


def _decided(step: StepPlan) -> str:
    if step.kind is StepKind.PIVOT:
        return "else parked for a person, never guessed; the saga stays RUNNING"
    if step.on_unknown is OnUnknown.PARK:
        return "else parked for a person (on_unknown); steps that don't wait for it go on"
    undo = step.compensation
    if undo is None or not undo.finds_unanswered_work:
        name = "its compensation" if undo is None else method_name(undo)
        return f"else parked for a person, and the saga rolls back: {name} needs the response that never came"
    how = "finds it by the action's key" if undo.by_key else "needs nothing of the response"
    return f"else undone as if it had happened, and the saga rolls back: {method_name(undo)} {how}"


def method_name(call: CallPlan) -> str:
    """A method without its service."""
    return call.method.rpartition("/")[2]
