"""What a resolved definition means, step by step, in words: how it is undone, and what happens when nobody knows.

It reads the very plan that the core runs, so what is said here is what will happen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from amends.v1 import annotations_pb2
from amends_coordinator.core.ids import StepName
from amends_coordinator.core.states import Guarantee
from amends_coordinator.definitions.advice import advice_on
from amends_coordinator.definitions.doubt import when_unknown
from amends_coordinator.definitions.origins import origins
from amends_coordinator.definitions.plans import plan_of
from amends_coordinator.definitions.schema import Schema
from amends_coordinator.definitions.spans import readable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from amends.v1 import saga_definition_pb2 as pb
    from amends_coordinator.core.plan import Plan, StepPlan
    from amends_coordinator.core.states import FailurePolicy, StepKind
    from amends_coordinator.definitions.errors import Fault

PROMISES = {
    Guarantee.BARRIER: "once per key",
    Guarantee.KEY: "once per key",
    Guarantee.NONE: "a repeated call may double its effect",
}
PROMISES_WHEN_UNDONE = {
    Guarantee.BARRIER: "; an action that comes after its compensation is refused",
    Guarantee.KEY: "; an action that comes after its compensation stands",
    Guarantee.NONE: "; an action that comes after its compensation stands",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CallOutlook:
    """One call of a step: its method, and where each field of its request comes from, as "target = origin"."""

    method: str
    fields: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOutlook:
    """One step. `path` is where it stands in the definition; `key`, `participant` and `when_unknown` are sentences."""

    path: str
    name: str
    kind: StepKind
    after: tuple[str, ...]
    action: CallOutlook
    compensation: CallOutlook | None
    lookup: CallOutlook | None
    guarantee: Guarantee
    key: str
    participant: str
    when_unknown: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """A definition. `output` says where each field of its output comes from; `warnings` are what it may well say, and
    what its author should know.
    """

    name: str
    version: str
    input_type: str
    output_type: str
    output: tuple[str, ...]
    timeout: str
    failure_policy: FailurePolicy
    steps: tuple[StepOutlook, ...]
    on_compensated: tuple[StepOutlook, ...]
    warnings: tuple[Fault, ...]


def outlook_of(resolved: pb.SagaDefinition) -> Outlook:
    """What a definition means, as registration has resolved it.

    Raises:
        DescriptorError: it is not a resolved definition.
    """
    plan, schema = plan_of(resolved), Schema(resolved.descriptors)
    return Outlook(
        name=resolved.name,
        version=resolved.version,
        input_type=resolved.input_type,
        output_type=resolved.output_type,
        output=tuple(_output(resolved, schema)),
        timeout=readable(plan.timeout_us),
        failure_policy=plan.failure_policy,
        steps=tuple(_steps("steps", resolved.steps, plan, schema)),
        on_compensated=tuple(_steps("on_compensated", resolved.on_compensated, plan, schema)),
        warnings=tuple(advice_on(resolved, plan)),
    )


def _output(resolved: pb.SagaDefinition, schema: Schema) -> Iterator[str]:
    if resolved.output_type:
        yield from origins(resolved.output, schema.message(resolved.output_type), schema.pool)


def _steps(path: str, steps: Iterable[pb.Step], plan: Plan, schema: Schema) -> Iterator[StepOutlook]:
    for index, step in enumerate(steps):
        planned = plan.by_name[StepName(step.name)]
        yield StepOutlook(
            path=f"{path}[{index}]",
            name=step.name,
            kind=planned.kind,
            after=tuple(step.after),
            action=_call(step.action, schema),
            compensation=_call(step.compensation, schema) if step.HasField("compensation") else None,
            lookup=_call(step.lookup, schema) if step.HasField("lookup") else None,
            guarantee=planned.guarantee,
            key=_key(step, planned),
            participant=_participant(step),
            when_unknown=tuple(when_unknown(planned, plan)),
        )


def _call(call: pb.Call, schema: Schema) -> CallOutlook:
    target = schema.method(call.method).input_type
    return CallOutlook(method=call.method, fields=tuple(origins(call.request, target, schema.pool)))


def _key(step: pb.Step, planned: StepPlan) -> str:
    """What the participant does with a key that comes again, and how long it remembers it."""
    window_us, guarantee = planned.action.idempotency_window_us, planned.guarantee
    undone = PROMISES_WHEN_UNDONE[guarantee] if planned.compensation is not None else ""
    remembered = f", remembered for {readable(window_us)}" if window_us else ""
    return f"{guarantee}: {PROMISES[guarantee]}{remembered}{undone}{_why_weaker(step, guarantee)}"


def _why_weaker(step: pb.Step, guarantee: Guarantee) -> str:
    """Why a step promises less than its action's method does."""
    promised = _promised(step.action)
    if promised == guarantee:
        return ""
    others = {name: getattr(step, name) for name in ("compensation", "lookup") if step.HasField(name)}
    weak = [
        f"its {name} {call.method.rpartition('/')[2]}" for name, call in others.items() if _promised(call) == guarantee
    ]
    verb = "promise" if len(weak) > 1 else "promises"
    why = f"{' and '.join(weak)} {verb} no more" if weak else "its calls are methods of two services"
    return f" ({promised} for the action alone: {why})"


def _promised(call: pb.Call) -> str:
    return annotations_pb2.Guarantee.Name(call.guarantee).removeprefix("GUARANTEE_")


def _participant(step: pb.Step) -> str:
    if step.participant:
        return step.participant
    if step.participant_input:
        return f"chosen by input.{step.participant_input}"
    calls = (step.action, step.compensation, step.lookup)
    services = dict.fromkeys(call.method.partition("/")[0] for call in calls if call.method)
    return f"the one that serves {' or '.join(services)}"
