"""Message templates compiled into builders: literals, and fields copied from elsewhere in the saga, become bytes."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, TypeAlias

from google.protobuf.message import DecodeError, EncodeError, Message

from amends.v1 import saga_definition_pb2 as pb
from amends_coordinator.core.ids import StepName
from amends_coordinator.core.saga import idempotency_key
from amends_coordinator.core.states import Direction
from amends_coordinator.definitions.classes import message_class
from amends_coordinator.definitions.errors import BindingError, DamagedPayloadError
from amends_coordinator.definitions.fields import find_path
from amends_coordinator.definitions.keys import key_uuid
from amends_coordinator.definitions.moves import Move, clearer, move, writer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from google.protobuf.descriptor import Descriptor

    from amends_coordinator.core.saga import Failure, Saga

Root: TypeAlias = "Callable[[Saga], Message | None]"
Put: TypeAlias = "Callable[[Saga, Message], None]"
SagaValue: TypeAlias = "Callable[[Saga], str]"

FAILURE_FIELDS: Mapping[pb.FailureField.ValueType, Callable[[Failure], str | None]] = {
    pb.FAILURE_FIELD_STEP: attrgetter("step"),
    pb.FAILURE_FIELD_REASON: attrgetter("reason"),
    pb.FAILURE_FIELD_STATUS_CODE: attrgetter("status_code"),
    pb.FAILURE_FIELD_MESSAGE: attrgetter("message"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StepMessages:
    """The types of a step's action."""

    request: Descriptor
    response: Descriptor


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What is built, for whom: one call of a step, or (without a step) the saga's output.

    `may_lack_response`: steps whose response may be missing: then its fields are left out. A call's own step, if it
    finds its work without them; steps that a person waived, or that the saga never came to, where that is told
    afterwards. `may_lack_request`: the same for requests.
    """

    target: Descriptor
    step: StepName | None = None
    direction: Direction = Direction.ACTION
    may_lack_response: frozenset[StepName] = frozenset()
    may_lack_request: frozenset[StepName] = frozenset()

    def __str__(self) -> str:
        if self.step is None:
            return "the saga's output"
        return f"the request of step {self.step}, {self.direction.value.lower()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What templates of one definition may read."""

    ledger_name: str
    input: Descriptor
    steps: Mapping[StepName, StepMessages]


class Builder:
    """Builds one message from a saga: always the same bytes from the same saga."""

    def __init__(self, template: pb.MessageTemplate, place: Place, surroundings: Surroundings) -> None:
        self._place = place
        self._new = _prototype(template, place.target)
        self._bytes = _whole_or_not if place.step is None else _whole
        self._copies: tuple[tuple[Root, tuple[Move, ...]], ...] = _copies(template, place, surroundings)
        self._puts: tuple[Put, ...] = tuple(
            _put(binding, place, surroundings.ledger_name)
            for binding in template.bindings
            if binding.WhichOneof("source") in ("saga", "failure")
        )

    def build(self, saga: Saga) -> bytes:
        """The message's bytes, serialised deterministically.

        Raises:
            BindingError: something that is copied isn't there.
            DamagedPayloadError: what it copies from doesn't parse.
        """
        try:
            built = self._new()
            for root, moves in self._copies:
                origin = root(saga)
                if origin is not None:
                    for copy in moves:
                        copy(origin, built)
            for put in self._puts:
                put(saga, built)
            return self._bytes(built)
        except DecodeError as error:
            raise DamagedPayloadError(
                f"{self._place} can't be built, because what is stored doesn't parse: {error}"
            ) from error
        except (EncodeError, TypeError, ValueError) as error:
            raise BindingError(f"{self._place} can't be built: {error}") from error


def _prototype(template: pb.MessageTemplate, target: Descriptor) -> Callable[[], Message]:
    """Makes the message that bindings are written over: the literals, without what the bindings replace in any case."""
    new = message_class(target)
    if not template.HasField("literals"):
        return new
    literals = new.FromString(template.literals.value)
    for binding in template.bindings:
        if binding.HasField("default_value"):
            clearer(find_path(target, binding.target))(literals)
    content = literals.SerializeToString(deterministic=True)
    return lambda: new.FromString(content)


def _whole(built: Message) -> bytes:
    return built.SerializeToString(deterministic=True)


def _whole_or_not(built: Message) -> bytes:
    """An output's bytes, also without fields that its type requires: nothing holds up a commit."""
    return built.SerializePartialToString(deterministic=True)


def _where_it_fits(copy: Move) -> Move:
    """For the same reason: leaves a field empty if its value doesn't fit, like text of proto2 that isn't UTF-8."""

    def copy_if_possible(origin: Message, built: Message) -> None:
        with suppress(TypeError, ValueError):
            copy(origin, built)

    return copy_if_possible


def _copies(
    template: pb.MessageTemplate, place: Place, surroundings: Surroundings
) -> tuple[tuple[Root, tuple[Move, ...]], ...]:
    """The moves of a template, by the message that they read, so that each is parsed once."""
    moves: dict[tuple[str, str], list[Move]] = {}
    for binding in template.bindings:
        found = source_of(binding)
        if found is not None:
            kind, step, path = found
            source = find_path(_source_type(kind, StepName(step), surroundings), path)
            copy = move(source, find_path(place.target, binding.target))
            moves.setdefault((kind, step), []).append(copy if place.step is not None else _where_it_fits(copy))
    return tuple(
        (_root(kind, StepName(step), place, surroundings), tuple(copies)) for (kind, step), copies in moves.items()
    )


def source_of(binding: pb.Binding) -> tuple[str, str, str] | None:
    """(which message, of which step, path in it) that a binding copies from; None: it copies nothing."""
    kind = binding.WhichOneof("source")
    if kind == "input":
        return kind, "", binding.input
    if kind == "step_request":
        return kind, binding.step_request.step, binding.step_request.path
    if kind == "step_response":
        return kind, binding.step_response.step, binding.step_response.path
    return None


def _source_type(kind: str, step: StepName, surroundings: Surroundings) -> Descriptor:
    if kind == "input":
        return surroundings.input
    messages = surroundings.steps[step]
    return messages.request if kind == "step_request" else messages.response


def _root(kind: str, step: StepName, place: Place, surroundings: Surroundings) -> Root:
    parse = message_class(_source_type(kind, step, surroundings)).FromString
    if kind == "input":
        return lambda saga: parse(saga.input)
    if kind == "step_request":
        if step in place.may_lack_request:
            return lambda saga: _parse_request_if_there(parse, saga, step)
        return lambda saga: parse(_request_of(saga, step, place))
    if step in place.may_lack_response:
        return lambda saga: _parse_response_if_there(parse, saga, step)
    return lambda saga: parse(_response_of(saga, step, place))


def _parse_request_if_there(parse: Callable[[bytes], Message], saga: Saga, step: StepName) -> Message | None:
    intent = saga.intent(step, Direction.ACTION)
    return None if intent is None else parse(intent.request)


def _parse_response_if_there(parse: Callable[[bytes], Message], saga: Saga, step: StepName) -> Message | None:
    intent = saga.intent(step, Direction.ACTION)
    return None if intent is None or intent.response is None else parse(intent.response)


def _request_of(saga: Saga, step: StepName, place: Place) -> bytes:
    intent = saga.intent(step, Direction.ACTION)
    if intent is None:
        raise BindingError(f"{place} can't be built: step {step} was never called")
    return intent.request


def _response_of(saga: Saga, step: StepName, place: Place) -> bytes:
    intent = saga.intent(step, Direction.ACTION)
    if intent is None or intent.response is None:
        raise BindingError(f"{place} can't be built: it copies from the response of step {step}, which never arrived")
    return intent.response


def _put(binding: pb.Binding, place: Place, ledger_name: str) -> Put:
    write = writer(find_path(place.target, binding.target))
    if binding.HasField("failure"):
        value = _failure_value(binding.failure)
    else:
        value = _saga_value(binding.saga, place, ledger_name)
    return lambda saga, built: write(built, value(saga))


def _failure_value(field: pb.FailureField.ValueType) -> SagaValue:
    read = FAILURE_FIELDS[field]
    return lambda saga: (saga.failure and read(saga.failure)) or ""


def _saga_value(field: pb.SagaField.ValueType, place: Place, ledger_name: str) -> SagaValue:
    step = place.step
    if field == pb.SAGA_FIELD_SAGA_ID or step is None:
        return lambda saga: saga.id
    of_action = field in (pb.SAGA_FIELD_ACTION_KEY, pb.SAGA_FIELD_ACTION_KEY_UUID)
    direction = Direction.ACTION if of_action else place.direction
    if field in (pb.SAGA_FIELD_KEY_UUID, pb.SAGA_FIELD_ACTION_KEY_UUID):
        return lambda saga: key_uuid(ledger_name, idempotency_key(saga.id, step, direction))
    return lambda saga: idempotency_key(saga.id, step, direction)
