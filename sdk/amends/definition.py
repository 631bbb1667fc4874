"""Turns a described saga into `amends.v1.SagaDefinition`: the same description always gives the same bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from google.protobuf import duration_pb2

from amends.descriptors import annotated_files, descriptor_of, descriptor_set, step_options
from amends.errors import DefinitionError
from amends.options import code_numbers
from amends.steps import StepKind
from amends.v1 import annotations_pb2, saga_definition_pb2

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import timedelta

    from google.protobuf.descriptor import FileDescriptor

    from amends.options import Retry
    from amends.saga import Saga
    from amends.steps import Step, StepCall


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
        steps=_steps(saga.steps),
        timeout=_duration(saga.timeout),
        on_compensated=_steps(saga.steps_once_compensated),
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
        if step.lookup is None and not step_options(step.action.call.method.descriptor).lookup:
            yield from _missing_lookup(step)
        undone = step.compensation is not None or step_options(step.action.call.method.descriptor).compensation
        if step.kind is StepKind.COMPENSATABLE and not undone:
            yield (
                f"step {step.name!r} can't be undone; call compensated_by(...) on it, annotate "
                f"{step.action.call.method.full_name} with (amends.v1.step), or use read_only(), pivot() or retriable()"
            )


def _missing_lookup(step: Step[Any, Any]) -> Iterator[str]:
    codes = step.action.options.codes
    if step.options.settle_delay is not None:
        yield f"step {step.name!r} has a settle_delay and no lookup; call looked_up_by(...), or leave it out"
    if codes is not None and codes.already_done:
        yield f"step {step.name!r} has already_done codes and no lookup; call looked_up_by(...), or leave them out"


def _steps(steps: Sequence[Step[Any, Any]]) -> Iterator[saga_definition_pb2.Step]:
    for index, step in enumerate(steps):
        message = saga_definition_pb2.Step(
            name=step.name,
            kind=step.kind.value,
            after=[before.name for before in step.after],
            after_none=index > 0 and not step.after,
            action=_call(step.action),
            participant=step.options.participant,
            participant_input=step.options.participant_input,
            settle_delay=_duration(step.options.settle_delay),
            at_most_once=step.options.at_most_once,
        )
        if step.compensation is not None:
            message.compensation.CopyFrom(_call(step.compensation))
        if step.lookup is not None:
            message.lookup.CopyFrom(_call(step.lookup))
        if step.options.guarantee is not None:
            message.guarantee = step.options.guarantee.value
        if step.options.on_unknown is not None:
            message.on_unknown = step.options.on_unknown.value
        yield message


def _call(said: StepCall) -> saga_definition_pb2.Call:
    options = said.options
    message = saga_definition_pb2.Call(
        method=said.call.method.full_name,
        request=said.call.template.to_proto(),
        timeout=_duration(options.timeout),
        retry=_retry(options.retry),
        by_key=options.by_key,
        idempotency_window=_duration(options.idempotency_window),
    )
    if options.guarantee is not None:
        message.guarantee = options.guarantee.value
    if options.codes is not None:
        message.added_rejected_codes.extend(code_numbers(options.codes.added_rejected))
        message.removed_rejected_codes.extend(code_numbers(options.codes.removed_rejected))
        message.already_done_codes.extend(code_numbers(options.codes.already_done))
    if options.nothing_to_undo_codes is not None:
        codes = annotations_pb2.StatusCodes(codes=code_numbers(options.nothing_to_undo_codes))
        message.nothing_to_undo_codes.CopyFrom(codes)
    return message


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
    for step in (*saga.steps, *saga.steps_once_compensated):
        yield from annotated_files(step.action.call.method.descriptor)
        for said in (step.action, step.compensation, step.lookup):
            if said is not None:
                descriptor = said.call.method.descriptor
                yield from (descriptor.containing_service.file, descriptor.input_type.file, descriptor.output_type.file)
