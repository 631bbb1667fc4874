"""Registration's checks of message templates: literals, targets, sources, and whether their types agree."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from google.protobuf.message import DecodeError, EncodeError
from google.protobuf.message_factory import GetMessageClass

from amends.v1 import saga_definition_pb2 as pb
from amends_coordinator.definitions.builders import source_of
from amends_coordinator.definitions.errors import choices, did_you_mean, quote
from amends_coordinator.definitions.fields import (
    STRING,
    PathError,
    Shape,
    field_shape,
    find_path,
    message_shape,
    mismatch,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from google.protobuf.descriptor import Descriptor, FieldDescriptor

    from amends_coordinator.definitions.errors import FaultList

TYPE_URL_PREFIX = "type.googleapis.com/"


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
    while the saga rolls back, or afterwards.
    """

    input: Descriptor | None
    steps: Mapping[str, StepTypes]
    readable: frozenset[str]
    afterwards: frozenset[str]
    own: str
    is_call: bool
    knows_failure: bool


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


@dataclass(slots=True)
class Targets:
    """The targets of one template so far: what is bound, what lies above it, and which members of oneofs."""

    bound: dict[tuple[str, ...], int] = field(default_factory=dict[tuple[str, ...], int])
    above: dict[tuple[str, ...], int] = field(default_factory=dict[tuple[str, ...], int])
    members: dict[tuple[tuple[str, ...], str], dict[str, SourceField | None]] = field(
        default_factory=dict[tuple[tuple[str, ...], str], "dict[str, SourceField | None]"]
    )

    def clash(self, path: Sequence[FieldDescriptor], index: int) -> str | None:
        """Take a target; why it can't be taken, or None."""
        names = tuple(each.name for each in path)
        if names in self.bound:
            return f"bindings[{self.bound[names]}] has the same target; bind it once"
        if names in self.above:
            return f"bindings[{self.above[names]}] binds a field inside it; bind the whole or its parts"
        for length in range(1, len(names)):
            if names[:length] in self.bound:
                return (
                    f"it lies inside the target of bindings[{self.bound[names[:length]]}]; bind the whole or its parts"
                )
            self.above.setdefault(names[:length], index)
        self.bound[names] = index
        return None

    def oneof_clash(self, path: Sequence[FieldDescriptor], source: SourceField | None) -> str | None:
        """Take the members of oneofs along a target; why they can't be taken, or None."""
        names = tuple(each.name for each in path)
        for depth, each in enumerate(path):
            if each.containing_oneof is None:
                continue
            members = self.members.setdefault((names[:depth], each.containing_oneof.name), {})
            mine = source if depth == len(path) - 1 else None
            for name, other in members.items():
                if name != each.name and not (mine and other and mine.excludes(other)):
                    return (
                        f"{name} is bound too, and oneof {each.containing_oneof.name} holds one of them; bind only one"
                    )
            members.setdefault(each.name, mine)
        return None


def check_template(
    template: pb.MessageTemplate, target: Descriptor, scope: Scope, path: str, faults: FaultList
) -> None:
    """Check one template against the type that it builds; its literals are brought into their canonical form."""
    if template.HasField("literals"):
        _check_literals(template, target, f"{path}.literals", faults)
    targets = Targets()
    for index, binding in enumerate(template.bindings):
        place = f"{path}.bindings[{index}]"
        fields = _target_fields(binding, target, f"{place}.target", faults)
        shape, source = _source(binding, scope, place, faults)
        if not fields:
            continue
        clash = targets.clash(fields, index)
        if clash is None and not binding.HasField("default_value"):
            clash = targets.oneof_clash(fields, source)
        if clash:
            faults.add(f"{place}.target", f"{quote(binding.target)}: {clash}")
        misfit = mismatch(shape, field_shape(fields[-1])) if shape else None
        if misfit:
            where = f"{place}.{binding.WhichOneof('source')}"
            faults.add(where, f"{quote(binding.target)}: {misfit}; bind a field of the target's type")


def tidy(call: pb.Call) -> None:
    """Bring a call's request into its canonical form: calls that mean the same have the same version."""
    sort_bindings(call.request)
    if not call.request.ByteSize():
        call.ClearField("request")


def sort_bindings(template: pb.MessageTemplate) -> None:
    """Bring bindings into the order of their targets; each target is bound once, so their order means nothing."""
    ordered = sorted(template.bindings, key=lambda binding: binding.target)
    del template.bindings[:]
    template.bindings.extend(ordered)


def _check_literals(template: pb.MessageTemplate, target: Descriptor, path: str, faults: FaultList) -> None:
    literals = template.literals
    if literals.type_url.rpartition("/")[2] != target.full_name:
        faults.add(path, f"{quote(literals.type_url)} is another type; send a {target.full_name}")
        return
    try:
        message = GetMessageClass(target).FromString(literals.value)
        value = message.SerializePartialToString(deterministic=True)
    except (DecodeError, EncodeError):
        faults.add(path, f"the bytes don't parse as {target.full_name}; send a message of that type")
        return
    literals.type_url, literals.value = f"{TYPE_URL_PREFIX}{target.full_name}", value
    if not value:
        template.ClearField("literals")


def _target_fields(
    binding: pb.Binding, target: Descriptor, path: str, faults: FaultList
) -> tuple[FieldDescriptor, ...]:
    if not binding.target:
        faults.add(path, f"it is required; name a field of {target.full_name}")
        return ()
    try:
        return find_path(target, binding.target)
    except PathError as error:
        faults.add(path, str(error))
        return ()


def _source(binding: pb.Binding, scope: Scope, path: str, faults: FaultList) -> tuple[Shape | None, SourceField | None]:
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
    return types.request if source.kind == "step_request" else types.response
