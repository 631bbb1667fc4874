"""What the core sees of a definition: the plan of a resolved one, without its protobuf types."""

from __future__ import annotations

from amends.v1 import annotations_pb2
from amends.v1 import saga_definition_pb2 as pb
from amends_coordinator.core.ids import DefinitionVersion, StepName
from amends_coordinator.core.plan import CallPlan, Plan, RetryPlan, StepPlan
from amends_coordinator.core.states import FailurePolicy, Guarantee, StepKind


def plan_of(definition: pb.SagaDefinition) -> Plan:
    """What the core sees of a resolved definition."""
    policy = pb.CompensationFailurePolicy.Name(definition.compensation_failure_policy)
    return Plan(
        name=definition.name,
        version=DefinitionVersion(definition.version),
        steps=tuple(_step_plan(step) for step in definition.steps),
        timeout_us=definition.timeout.ToMicroseconds(),
        failure_policy=FailurePolicy(policy.removeprefix("COMPENSATION_FAILURE_POLICY_")),
    )


def _step_plan(step: pb.Step) -> StepPlan:
    return StepPlan(
        name=StepName(step.name),
        kind=StepKind(pb.StepKind.Name(step.kind).removeprefix("STEP_KIND_")),
        after=tuple(StepName(name) for name in step.after),
        action=_call_plan(step.action),
        compensation=_compensation_plan(step) if step.HasField("compensation") else None,
        lookup=_call_plan(step.lookup) if step.HasField("lookup") else None,
        participant=step.participant,
        guarantee=Guarantee(annotations_pb2.Guarantee.Name(step.guarantee).removeprefix("GUARANTEE_")),
    )


def _compensation_plan(step: pb.Step) -> CallPlan:
    bindings = step.compensation.request.bindings
    reads_own = any(each.HasField("step_response") and each.step_response.step == step.name for each in bindings)
    return _call_plan(step.compensation, needs_response=reads_own, by_key=step.compensation.by_key)


def _call_plan(call: pb.Call, *, needs_response: bool = False, by_key: bool = False) -> CallPlan:
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
    )
