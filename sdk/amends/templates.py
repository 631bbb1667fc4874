"""How a message is built: from references and literals, given by field name, to a `MessageTemplate`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from google.protobuf import any_pb2
from google.protobuf.message import Message

from amends.descriptors import descriptor_of
from amends.errors import DefinitionError
from amends.references import Source, find_field, source_of
from amends.shapes import shape_of_field
from amends.v1 import saga_definition_pb2

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from google.protobuf.descriptor import FieldDescriptor


@dataclass(frozen=True, slots=True)
class Template:
    """The fields of one message, each with where its value comes from."""

    message_type: type[Message]
    sources: tuple[tuple[str, Source], ...]
    """Target field and source, in the order of the field numbers."""
    literals: Message
    """The fields with a fixed value."""
    defaults: tuple[str, ...]
    """Fields that are said to stay empty. A message can't tell that from "not said" where a field has no presence."""

    def to_proto(self) -> saga_definition_pb2.MessageTemplate:
        """The template as the coordinator gets it; equal templates give equal bytes."""
        template = saga_definition_pb2.MessageTemplate()
        if self.literals.ListFields():
            packed = any_pb2.Any()
            packed.Pack(self.literals, deterministic=True)
            template.literals.CopyFrom(packed)
        template.bindings.extend(source.binding(target) for target, source in self.sources)
        template.bindings.extend(
            saga_definition_pb2.Binding(target=target, default_value=saga_definition_pb2.DefaultValue())
            for target in self.defaults
        )
        return template


def make_template(
    message_type: type[Message], where: str, positional: tuple[object, ...], fields: Mapping[str, object]
) -> Template:
    """Builds a template from keyword arguments.

    Arguments:
        message_type: the type of the message.
        where: what is being built, for the errors.
        positional: arguments without a name; there may be none.
        fields: by name, a reference or a literal of the field's type. None and an empty literal of a field without
            presence mean "stays empty, and is not to be resolved by name".
    """
    if positional:
        raise DefinitionError(
            f"{where} takes its fields by name: write field=value, there are {len(positional)} without a name"
        )
    descriptor = descriptor_of(message_type)
    named = sorted(
        ((find_field(descriptor, name), value) for name, value in fields.items()), key=lambda pair: pair[0].number
    )
    _refuse_two_of_one_choice([field for field, _ in named], where)
    sources: list[tuple[str, Source]] = []
    literals, defaults = message_type(), list[str]()
    for field, value in named:
        source = source_of(value)
        if source is not None:
            sources.append((field.name, _fitting(source, field, where)))
            continue
        literal = _literal(message_type, field, value, where)
        if literal.ListFields():
            literals.MergeFrom(literal)
        else:
            defaults.append(field.name)
    return Template(message_type, tuple(sources), literals, tuple(defaults))


def _fitting(source: Source, field: FieldDescriptor, where: str) -> Source:
    wanted = shape_of_field(field)
    if not source.shape.fits(wanted):
        raise DefinitionError(
            f"{where}: {field.name} is of type {wanted.text}, but {source} is of type {source.shape.text}"
        )
    return source


def _literal(message_type: type[Message], field: FieldDescriptor, value: object, where: str) -> Message:
    for part in _parts(value):
        inner = source_of(part)
        if inner is not None:
            raise DefinitionError(
                f"{where}: {field.name} is built from the reference {inner}, but a reference fills a whole field: "
                f"name a field of the shape {shape_of_field(field).text}, or build the value in the participant"
            )
    try:
        return message_type(**{field.name: value})
    except (TypeError, ValueError, AttributeError) as error:
        wanted = shape_of_field(field).text
        raise DefinitionError(
            f"{where}: {field.name} is of type {wanted}, not this {type(value).__name__}: {error}"
        ) from error


def _parts(value: object) -> Iterator[object]:
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, (list, tuple, set, frozenset)):
        yield from value


def _refuse_two_of_one_choice(fields: list[FieldDescriptor], where: str) -> None:
    taken: dict[str, str] = {}
    for field in fields:
        choice = field.containing_oneof
        if choice is None:
            continue
        if choice.name in taken:
            raise DefinitionError(
                f"{where}: {taken[choice.name]} and {field.name} exclude each other (oneof {choice.name}): give one"
            )
        taken[choice.name] = field.name
