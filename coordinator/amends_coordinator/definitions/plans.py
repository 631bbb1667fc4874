"""What the core sees of a definition: the plan of a resolved one, without its protobuf types.

Registration fills every field that is read here. A definition that an earlier release has stored lacks the newer ones;
what it lacks counts as what that release knew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from amends.v1 import annotations_pb2
from amends.v1 import saga_definition_pb2 as pb
from amends_coordinator.core.answer import REJECTED_CODES
from amends_coordinator.core.ids import DefinitionVersion, StepName
from amends_coordinator.core.plan import NOTHING_TO_UNDO_CODES, CallPlan, Plan, RetryPlan, StepPlan
from amends_coordinator.core.states import FailurePolicy, Guarantee, OnUnknown, StepKind
from amends_coordinator.definitions.codes import code_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

WEAKEST_FIRST = (Guarantee.NONE, Guarantee.KEY, Guarantee.BARRIER)


def plan_of(definition: pb.SagaDefinition) -> Plan:
    """What the core sees of a resolved definition."""
    policy = pb.CompensationFailurePolicy.Name(definition.compensation_failure_policy)
    read = frozenset(_steps_whose_response_is_read(definition))
    return Plan(
        name=definition.name,
        version=DefinitionVersion(definition.version),
        steps=tuple(_step_plan(step, read) for step in definition.steps),
        timeout_us=definition.timeout.ToMicroseconds(),
        failure_policy=FailurePolicy(policy.removeprefix("COMPENSATION_FAILURE_POLICY_")),
        on_compensated=tuple(_step_plan(step, read) for step in definition.on_compensated),
    )


def _steps_whose_response_is_read(definition: pb.SagaDefinition) -> Iterator[str]:
    """Steps whose response a call of a later step, their own compensation or the output copies from."""
    templates = [definition.output]
    for step in (*definition.steps, *definition.on_compensated):
        templates += step.action.request, step.compensation.request, step.lookup.request
    for template in templates:
        yield from (each.step_response.step for each in template.bindings if each.HasField("step_response"))


def _step_plan(step: pb.Step, read: frozenset[str]) -> StepPlan:
    kind = StepKind(pb.StepKind.Name(step.kind).removeprefix("STEP_KIND_"))
    guarantee = _guarantee(step)
    has_lookup = step.HasField("lookup")
    on_unknown = step.on_unknown or pb.ON_UNKNOWN_COMPENSATE
    return StepPlan(
        name=StepName(step.name),
        kind=kind,
        after=tuple(StepName(name) for name in step.after),
        action=_call_plan(step.action),
        compensation=_compensation_plan(step, guarantee) if step.HasField("compensation") else None,
        lookup=_call_plan(step.lookup) if has_lookup else None,
        participant=step.participant,
        guarantee=guarantee,
        lookup_seals=guarantee is Guarantee.BARRIER and has_lookup and kind is not StepKind.RETRIABLE,
        on_unknown=OnUnknown(pb.OnUnknown.Name(on_unknown).removeprefix("ON_UNKNOWN_")),
        settle_delay_us=step.settle_delay.ToMicroseconds() if step.HasField("settle_delay") else None,
        at_most_once=step.at_most_once,
        response_read=step.name in read,
    )


def _guarantee(step: pb.Step) -> Guarantee:
    """The weakest of a step's calls. One barrier can serve them all only if they are methods of one service."""
    others = [getattr(step, name) for name in ("compensation", "lookup") if step.HasField(name)]
    found = [_of_call(step.action, earlier=_named(step.guarantee or annotations_pb2.GUARANTEE_KEY))]
    # A release that knew no guarantee of single calls looked at the action's method alone.
    found += (_of_call(call, earlier=min(found[0], Guarantee.KEY, key=WEAKEST_FIRST.index)) for call in others)
    if len({call.method.partition("/")[0] for call in (step.action, *others)}) > 1:
        found.append(Guarantee.KEY)
    return min(found, key=WEAKEST_FIRST.index)


def _of_call(call: pb.Call, *, earlier: Guarantee) -> Guarantee:
    return _named(call.guarantee) if call.guarantee else earlier


def _named(guarantee: annotations_pb2.Guarantee.ValueType) -> Guarantee:
    return Guarantee(annotations_pb2.Guarantee.Name(guarantee).removeprefix("GUARANTEE_"))


def _compensation_plan(step: pb.Step, guarantee: Guarantee) -> CallPlan:
    bindings = step.compensation.request.bindings
    reads_own = any(each.HasField("step_response") and each.step_response.step == step.name for each in bindings)
    # Under the action's own barrier it is called by the action's key, whatever its request holds.
    by_key = step.compensation.by_key or guarantee is Guarantee.BARRIER
    return _call_plan(step.compensation, needs_response=reads_own, by_key=by_key)


def _call_plan(call: pb.Call, *, needs_response: bool = False, by_key: bool = False) -> CallPlan:
    already_done = _names(call.already_done_codes)
    return CallPlan(
        method=call.method,
        timeout_us=call.timeout.ToMicroseconds(),
        retry=RetryPlan(
            initial_delay_us=call.retry.initial_delay.ToMicroseconds(),
            maximum_delay_us=call.retry.maximum_delay.ToMicroseconds(),
            total_timeout_us=call.retry.total_timeout.ToMicroseconds(),
            maximum_refusals=call.retry.maximum_refusal_count,
        ),
        needs_response=needs_response,
        by_key=by_key,
        rejected_codes=REJECTED_CODES.union(_names(call.added_rejected_codes))
        - _names(call.removed_rejected_codes)
        - already_done,
        already_done_codes=already_done,
        nothing_to_undo_codes=(
            _names(call.nothing_to_undo_codes.codes)
            if call.HasField("nothing_to_undo_codes")
            else NOTHING_TO_UNDO_CODES
        ),
        idempotency_window_us=call.idempotency_window.ToMicroseconds(),
    )


def _names(codes: Iterable[annotations_pb2.StatusCode.ValueType]) -> frozenset[str]:
    return frozenset(code_name(code) for code in codes)
