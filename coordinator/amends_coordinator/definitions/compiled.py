"""A stored definition made ready to run: its plan for the core, and its bindings as closures over its own types."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError, EncodeError

from amends.v1 import saga_definition_pb2 as pb
from amends_coordinator.core.ids import StepName
from amends_coordinator.core.states import Direction
from amends_coordinator.definitions.builders import Builder, Place, StepMessages, Surroundings
from amends_coordinator.definitions.chosen import ChosenParticipants
from amends_coordinator.definitions.classes import message_class
from amends_coordinator.definitions.errors import BindingError, DescriptorError, PayloadError, quote
from amends_coordinator.definitions.fields import PathError
from amends_coordinator.definitions.plans import plan_of
from amends_coordinator.definitions.schema import Schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from google.protobuf.descriptor import Descriptor
    from google.protobuf.message import Message

    from amends_coordinator.core.definition import StoredDefinition
    from amends_coordinator.core.plan import Plan
    from amends_coordinator.core.saga import Saga

__all__ = ["BindingError", "CompiledDefinition", "PayloadError", "compile_definition"]

DEFAULT_LEDGER_NAME = "default"


class CompiledDefinition:
    """One version of a definition, ready to run. Immutable; may be used by many sagas and threads at once.

    It keeps its `schema`, so that definitions with the same descriptors can share one.
    """

    def __init__(self, definition: pb.SagaDefinition, schema: Schema, *, ledger_name: str) -> None:
        self.schema = schema
        self.plan = plan_of(definition)
        self.name = definition.name
        self.version = self.plan.version
        self.input_type = definition.input_type
        self.output_type = definition.output_type or None
        self._types = dict(_call_types(definition, schema))
        self._parsers: dict[tuple[StepName, Direction], Callable[[bytes], bool]] = {
            key: partial(_parses, message_class(messages.response).FromString) for key, messages in self._types.items()
        }
        self._parse_input = message_class(schema.message(definition.input_type)).FromString
        surroundings = Surroundings(
            ledger_name=ledger_name,
            input=schema.message(definition.input_type),
            steps={step: types for (step, direction), types in self._types.items() if direction is Direction.ACTION},
        )
        self._builders = dict(_builders(definition, self.plan, self._types, surroundings))
        self._output = _output_builder(definition, schema, surroundings)
        self._chosen = ChosenParticipants(list(_all_steps(definition)), surroundings.input)
        self._named = {name: step.participant for name, step in self.plan.by_name.items() if name not in self._chosen}

    def bind(self, saga: Saga, step: StepName, direction: Direction) -> bytes:
        """The request of one call: the same bytes whenever it is built from the same saga.

        Raises:
            BindingError: what it copies isn't there, or the step has no such call.
        """
        builder = self._builders.get((step, direction))
        if builder is None:
            raise BindingError(f"step {step} of definition {self.name} has no {direction.value.lower()}")
        return builder.build(saga)

    def output(self, saga: Saga) -> bytes | None:
        """The saga's output; None if the definition has none.

        Raises:
            BindingError: what it copies isn't there.
        """
        return None if self._output is None else self._output.build(saga)

    def canonical_input(self, type_name: str, value: bytes) -> bytes:
        """An input in the one form in which equal inputs have equal bytes.

        Args:
            type_name: full name of the message type that was sent.
            value: its bytes.

        Raises:
            PayloadError: it is of another type, or doesn't parse.
        """
        if type_name != self.input_type:
            raise PayloadError(
                f"definition {self.name} takes a {self.input_type}, not a {quote(type_name)}; send that type"
            )
        try:
            return self._parse_input(value).SerializeToString(deterministic=True)
        except DecodeError as error:
            raise PayloadError(f"the bytes don't parse as {self.input_type}; send a message of that type") from error
        except EncodeError as error:
            raise PayloadError(f"{error}; fill them") from error

    def participant(self, saga: Saga, step: StepName) -> str:
        """Name of the participant that serves all calls of a step, for the saga's whole life; "": whichever serves the
        method's service. `KeyError`: there is no such step.

        Raises:
            PayloadError: the stored input, which chooses it, was damaged.
        """
        named = self._named.get(step)
        return self._chosen.of(step, saga.input) if named is None else named

    def chosen_participants(self, value: bytes) -> frozenset[str]:
        """Names of the participants that an input chooses for steps.

        Args:
            value: the input's bytes.

        Raises:
            PayloadError: where it has to choose one it names none; no saga may be started with it.
        """
        return self._chosen.all(value)

    def request_type(self, step: StepName, direction: Direction) -> str:
        """Full name of the request's message type. `KeyError`: the step has no such call."""
        return self._types[step, direction].request.full_name

    def response_type(self, step: StepName, direction: Direction) -> str:
        """Full name of the response's message type. `KeyError`: the step has no such call."""
        return self._types[step, direction].response.full_name

    def parser(self, step: StepName, direction: Direction) -> Callable[[bytes], bool]:
        """What tells whether a participant's bytes are a response of the method that a call is of. `KeyError`: the step
        has no such call.
        """
        return self._parsers[step, direction]


def compile_definition(
    stored: StoredDefinition, *, ledger_name: str = DEFAULT_LEDGER_NAME, schema: Schema | None = None
) -> CompiledDefinition:
    """Compile a definition as registration has resolved it.

    Args:
        stored: the definition as it stands in the ledger.
        ledger_name: the ledger's name; keys in UUID form depend on it.
        schema: the definition's types, where they are already loaded.

    Raises:
        DescriptorError: the stored bytes are not a resolved definition of this release.
    """
    definition = parse_definition(stored)
    try:
        return CompiledDefinition(definition, schema or Schema(definition.descriptors), ledger_name=ledger_name)
    except (DecodeError, KeyError, PathError, ValueError) as error:
        raise DescriptorError(f"definition {stored.name} {stored.version} can't be compiled: {error!r}") from error


def parse_definition(stored: StoredDefinition) -> pb.SagaDefinition:
    """The stored definition as a message.

    Raises:
        DescriptorError: the stored bytes are something else.
    """
    try:
        return pb.SagaDefinition.FromString(stored.content)
    except DecodeError as error:
        raise DescriptorError(f"definition {stored.name} {stored.version} doesn't parse: {error}") from error


def _parses(parse: Callable[[bytes], Message], data: bytes) -> bool:
    try:
        parse(data)
    except DecodeError:
        return False
    return True


def _all_steps(definition: pb.SagaDefinition) -> Iterator[pb.Step]:
    yield from definition.steps
    yield from definition.on_compensated


def _calls(step: pb.Step) -> Iterator[tuple[Direction, pb.Call]]:
    yield Direction.ACTION, step.action
    if step.HasField("compensation"):
        yield Direction.COMPENSATION, step.compensation
    if step.HasField("lookup"):
        yield Direction.LOOKUP, step.lookup


def _call_types(
    definition: pb.SagaDefinition, schema: Schema
) -> Iterator[tuple[tuple[StepName, Direction], StepMessages]]:
    for step in _all_steps(definition):
        for direction, call in _calls(step):
            method = schema.method(call.method)
            messages = StepMessages(request=method.input_type, response=method.output_type)
            yield (StepName(step.name), direction), messages


def _builders(
    definition: pb.SagaDefinition,
    plan: Plan,
    types: dict[tuple[StepName, Direction], StepMessages],
    surroundings: Surroundings,
) -> Iterator[tuple[tuple[StepName, Direction], Builder]]:
    told_afterwards = frozenset(step.name for step in plan.steps)
    for step in _all_steps(definition):
        name = StepName(step.name)
        is_told = name not in told_afterwards
        for direction, call in _calls(step):
            call_plan = plan.by_name[name].call(direction)
            own = frozenset({name} if call_plan.by_key or direction is Direction.LOOKUP else ())
            place = Place(
                target=types[name, direction].request,
                step=name,
                direction=direction,
                may_lack_response=told_afterwards if is_told else own,
                may_lack_request=told_afterwards if is_told else frozenset(),
            )
            yield (name, direction), Builder(call.request, place, surroundings)


def _output_builder(definition: pb.SagaDefinition, schema: Schema, surroundings: Surroundings) -> Builder | None:
    """What a person waived has no response, which leaves its fields of the output empty and holds up no commit."""
    if not definition.output_type:
        return None
    target: Descriptor = schema.message(definition.output_type)
    steps = frozenset(StepName(step.name) for step in definition.steps)
    return Builder(
        definition.output, Place(target=target, may_lack_response=steps, may_lack_request=steps), surroundings
    )
