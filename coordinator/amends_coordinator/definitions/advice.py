"""What a sound definition may well say, but its author should know: who will be needed, and where promises end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amends.v1 import annotations_pb2
from amends_coordinator.core.ids import StepName
from amends_coordinator.core.states import Guarantee, OnUnknown, StepKind
from amends_coordinator.definitions.doubt import method_name
from amends_coordinator.definitions.errors import Fault

if TYPE_CHECKING:
    from collections.abc import Iterator

    from amends.v1 import saga_definition_pb2 as pb
    from amends_coordinator.core.plan import Plan, StepPlan


def advice_on(resolved: pb.SagaDefinition, plan: Plan) -> Iterator[Fault]:
    """What to know about a resolved definition, each with the path that it is about and what can be done."""
    for path, steps in (("steps", resolved.steps), ("on_compensated", resolved.on_compensated)):
        for index, step in enumerate(steps):
            yield from _on_step(step, plan.by_name[StepName(step.name)], f"{path}[{index}]")


def _on_step(step: pb.Step, planned: StepPlan, path: str) -> Iterator[Fault]:
    action = method_name(planned.action)
    if planned.guarantee is Guarantee.NONE and planned.kind is not StepKind.READ_ONLY:
        yield Fault(
            f"{path}.guarantee",
            f"{_without_promise(step)} promises nothing about repeated calls, so its effect may double after a call"
            " that wasn't answered; have it do its work once per idempotency-key (GUARANTEE_KEY)",
        )
    best = "" if planned.lookup else ", best with a lookup"
    if planned.kind is StepKind.PIVOT and step.action.guarantee != annotations_pb2.GUARANTEE_BARRIER:
        yield Fault(
            f"{path}.guarantee",
            f"{action} has neither a barrier nor a lookup that seals, so if it doesn't answer a person has to find out"
            f" whether it happened; serve it with the barrier (GUARANTEE_BARRIER){best}",
        )
    if _parks_unknown(planned):
        yield Fault(
            f"{path}.compensation",
            f"if {action} doesn't answer, a person has to find out whether it happened: the compensation needs its"
            " response; bind a field of the request or saga.action_key instead, make it by_key, or use the barrier",
        )


def _without_promise(step: pb.Step) -> str:
    calls = [call for call in (step.action, step.compensation, step.lookup) if call.method]
    found = next(call for call in calls if call.guarantee == annotations_pb2.GUARANTEE_NONE)
    return found.method.rpartition("/")[2]


def _parks_unknown(step: StepPlan) -> bool:
    """Whether an action that stays unknown waits for a person although nobody asked for that."""
    if step.kind is not StepKind.COMPENSATABLE or step.on_unknown is OnUnknown.PARK or step.compensation is None:
        return False
    is_believed = step.lookup is not None and step.settle_delay_us is not None
    return not step.compensation.finds_unanswered_work and not is_believed
