"""Turns a described saga into `amends.v1.SagaDefinition`: the same description always gives the same bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from google.protobuf import duration_pb2

from amends.descriptors import annotated_files, descriptor_of, descriptor_set, step_options
from amends.errors import DefinitionError
from amends.steps import StepKind
from amends.v1 import saga_definition_pb2

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import timedelta

    from google.protobuf.descriptor import FileDescriptor

    from amends.saga import Saga
    from amends.steps import Retry, Step, StepCall


def build_definition(saga: Saga[Any, Any]) -> saga_definition_pb2.SagaDefinition:  # whatever goes in and comes out
    """The definition of a saga whose description is complete.

    Raises:
        DefinitionError: something is missing: steps, the output, a compensation. All missing things are named at once.
    """
    missing = list(_missing(saga))
    if missing:
        raise DefinitionError(f"saga {saga.name!r} isn't complete: " + "; ".join(missing))
    definition = saga_definition_pb2.SagaDefinition(
        name=saga.name,
        input_type=saga.input_type.DESCRIPTOR.full_name,
        steps=[_step(step) for step in saga.steps],
        timeout=_duration(saga.timeout),
        descriptors=descriptor_set(_files(saga)),
    )
    if saga.output_type is not None and saga.output_template is not None:
        definition.output_type = saga.output_type.DESCRIPTOR.full_name
        definition.output.CopyFrom(saga.output_template.to_proto())
    if saga.compensation_failure_policy is not None:
        definition.compensation_failure_policy = saga.compensation_failure_policy.value
    return definition


def _missing(saga: Saga[Any, Any]) -> Iterator[str]:
    if not saga.steps:
        yield "it has no step; add one with step(), read_only(), pivot() or retriable()"
    if saga.output_type is not None and saga.output_template is None:
        name = saga.output_type.DESCRIPTOR.name
        yield f"it doesn't say how its output is built; call output({name})(...), or leave output= out"
    for step in saga.steps:
        undone = step.compensation is not None or step_options(step.action.call.method.descriptor).compensation
        if step.kind is StepKind.COMPENSATABLE and not undone:
            yield (
                f"step {step.name!r} can't be undone; call compensated_by(...) on it, annotate "
                f"{step.action.call.method.full_name} with (amends.v1.step), or use read_only(), pivot() or retriable()"
            )


def _step(step: Step[Any, Any]) -> saga_definition_pb2.Step:
    message = saga_definition_pb2.Step(
        name=step.name,
        kind=step.kind.value,
        after=[before.name for before in step.after],
        action=_call(step.action),
        participant=step.participant,
    )
    if step.compensation is not None:
        message.compensation.CopyFrom(_call(step.compensation))
    if step.lookup is not None:
        message.lookup.CopyFrom(_call(step.lookup))
    if step.guarantee is not None:
        message.guarantee = step.guarantee.value
    return message


def _call(said: StepCall) -> saga_definition_pb2.Call:
    return saga_definition_pb2.Call(
        method=said.call.method.full_name,
        request=said.call.template.to_proto(),
        timeout=_duration(said.timeout),
        retry=_retry(said.retry),
        by_key=said.by_key,
    )


def _retry(retry: Retry | None) -> saga_definition_pb2.RetryPolicy | None:
    if retry is None:
        return None
    return saga_definition_pb2.RetryPolicy(
        initial_delay=_duration(retry.initial_delay),
        maximum_delay=_duration(retry.maximum_delay),
        total_timeout=_duration(retry.total_timeout),
        maximum_refusal_count=retry.maximum_refusal_count or 0,
    )


def _duration(duration: timedelta | None) -> duration_pb2.Duration | None:
    if duration is None:
        return None
    message = duration_pb2.Duration()
    message.FromTimedelta(duration)
    return message


def _files(saga: Saga[Any, Any]) -> Iterator[FileDescriptor]:
    yield descriptor_of(saga.input_type).file
    if saga.output_type is not None:
        yield descriptor_of(saga.output_type).file
    for step in saga.steps:
        yield from annotated_files(step.action.call.method.descriptor)
        for said in (step.action, step.compensation, step.lookup):
            if said is not None:
                descriptor = said.call.method.descriptor
                yield from (descriptor.containing_service.file, descriptor.input_type.file, descriptor.output_type.file)
