"""What the bindings of a template may read, and what each of them copies from there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from amends.v1 import saga_definition_pb2 as pb
from amends_coordinator.definitions.builders import source_of
from amends_coordinator.definitions.errors import choices, did_you_mean, quote
from amends_coordinator.definitions.fields import STRING, PathError, Shape, field_shape, find_path, message_shape

if TYPE_CHECKING:
    from collections.abc import Mapping

    from google.protobuf.descriptor import Descriptor

    from amends_coordinator.definitions.errors import FaultList


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTypes:
    """The types of a step's action. None: the method is at fault, which is reported elsewhere."""

    request: Descriptor | None = None
    response: Descriptor | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What a template may read: the input, and of all `steps` the `readable` ones.

    `afterwards`: those that begin only once the saga is compensated.
    `own`: the step whose call is built; empty for the output. `is_call`: it has a key. `knows_failure`: it is built
    while the saga rolls back, or afterwards. `awaits_response`: it is built because the response of `own` is missing.
    """

    input: Descriptor | None
    steps: Mapping[str, StepTypes]
    readable: frozenset[str]
    afterwards: frozenset[str]
    own: str
    is_call: bool
    knows_failure: bool
    awaits_response: bool


class SourceField(NamedTuple):
    """A field in a message of the saga: which message, of which step, path, and the oneof that the field is in."""

    kind: str
    step: str
    path: str
    oneof: str

    def excludes(self, other: SourceField) -> bool:
        """Whether at most one of the two can be set: they are different members of one oneof of one message."""
        here, there = self.path.rpartition(".")[0], other.path.rpartition(".")[0]
        same_message = (self.kind, self.step, here) == (other.kind, other.step, there)
        return bool(self.oneof) and self.oneof == other.oneof and same_message and self.path != other.path


def source_shape(
    binding: pb.Binding, scope: Scope, path: str, faults: FaultList
) -> tuple[Shape | None, SourceField | None]:
    """The shape of what a binding copies; None where there is none, or where a fault is reported."""
    copied = source_of(binding)
    if copied is not None:
        return _copied(SourceField(*copied, oneof=""), scope, path, faults)
    kind = binding.WhichOneof("source")
    if kind is None:
        faults.add(
            path,
            "it has no source; give it one (input, step_request, step_response, saga, failure), or `default_value` to"
            " leave the field empty",
        )
    if kind == "failure":
        return _failure(binding, scope, f"{path}.failure", faults), None
    if kind != "saga":
        return None, None
    if binding.saga == pb.SAGA_FIELD_UNSPECIFIED or binding.saga not in pb.SagaField.values():
        known = choices("SAGA_FIELD_", dict(pb.SagaField.items()))
        faults.add(
            f"{path}.saga", f"{int(binding.saga)} is no SagaField that this release knows; choose one of {known}"
        )
        return None, None
    if not scope.is_call and binding.saga != pb.SAGA_FIELD_SAGA_ID:
        faults.add(f"{path}.saga", "the output has no idempotency key; only SAGA_FIELD_SAGA_ID can stand here")
        return None, None
    return STRING, None


def _failure(binding: pb.Binding, scope: Scope, path: str, faults: FaultList) -> Shape | None:
    if binding.failure == pb.FAILURE_FIELD_UNSPECIFIED or binding.failure not in pb.FailureField.values():
        number = int(binding.failure)
        known = choices("FAILURE_FIELD_", dict(pb.FailureField.items()))
        faults.add(path, f"{number} is no FailureField that this release knows; choose one of {known}")
        return None
    if not scope.knows_failure:
        faults.add(
            path,
            "nothing has failed when this is built; only the request of a compensation or of an on_compensated step"
            " can say why the saga rolls back",
        )
        return None
    return STRING


def _copied(source: SourceField, scope: Scope, path: str, faults: FaultList) -> tuple[Shape | None, SourceField | None]:
    if source.kind == "input":
        message, place = scope.input, f"{path}.input"
    else:
        message, place = (
            _step_message(source, scope, f"{path}.{source.kind}.step", faults),
            f"{path}.{source.kind}.path",
        )
    if message is None:
        return None, None
    try:
        fields = find_path(message, source.path)
    except PathError as error:
        faults.add(place, str(error))
        return None, None
    if not fields:
        return message_shape(message), source
    oneof = fields[-1].containing_oneof
    return field_shape(fields[-1]), source._replace(oneof=oneof.name if oneof is not None else "")


def _step_message(source: SourceField, scope: Scope, path: str, faults: FaultList) -> Descriptor | None:
    types = scope.steps.get(source.step)
    if types is None:
        instead = did_you_mean(source.step, scope.steps) or "; name an earlier step"
        faults.add(path, f"there is no step {quote(source.step)}{instead}")
        return None
    if source.step == scope.own and source.step not in scope.readable:
        faults.add(path, f"{source.step} is the step itself, and its request is only being built; name an earlier step")
        return None
    if source.step in scope.afterwards and scope.own not in scope.afterwards:
        faults.add(path, f"{source.step} begins only once the saga is compensated; name one of `steps`")
        return None
    if source.step not in scope.readable:
        faults.add(
            path,
            f"{source.step} need not have run when this is built; wait for it (`after`), or name a step that is waited"
            " for, directly or through others",
        )
        return None
    if source.step == scope.own and source.kind == "step_response" and scope.awaits_response:
        faults.add(
            path,
            f"{source.step} has no response when its lookup is asked, so the field would be empty and nothing be found;"
            " bind a field of its request, or saga.action_key",
        )
        return None
    return types.request if source.kind == "step_request" else types.response
