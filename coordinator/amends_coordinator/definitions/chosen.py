"""Which participant serves a step where the saga's input chooses it: the check at registration, and the choice itself.

The choice is made from the stored input whenever it is asked for, so action, compensation and lookup of a step go to
one participant for the saga's whole life, also after a crash.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError

from amends_coordinator.core.ids import StepName
from amends_coordinator.definitions.classes import message_class
from amends_coordinator.definitions.errors import PayloadError, quote
from amends_coordinator.definitions.fields import STRING, PathError, field_shape, find_path
from amends_coordinator.definitions.step_order import PARTICIPANT_NAME

if TYPE_CHECKING:
    from collections.abc import Sequence

    from google.protobuf.descriptor import Descriptor, FieldDescriptor
    from google.protobuf.message import Message

    from amends.v1 import saga_definition_pb2 as pb
    from amends_coordinator.definitions.errors import FaultList


def check_chosen(step: pb.Step, input_type: Descriptor | None, path: str, faults: FaultList) -> None:
    """Check a step's `participant_input`: a single string of the input, and the only thing that names a participant.

    Args:
        step: the step.
        input_type: the input's type; None where that is at fault, which is reported elsewhere.
        path: where the step stands in its definition.
        faults: what is wrong is added here.
    """
    place = f"{path}.participant_input"
    if not step.participant_input:
        return
    if step.participant:
        faults.add(place, f"`participant` names {quote(step.participant)} already; leave one of the two out")
    if input_type is None:
        return
    try:
        shape = field_shape(find_path(input_type, step.participant_input)[-1])
    except PathError as error:
        faults.add(place, str(error))
        return
    if shape != STRING:
        faults.add(
            place,
            f"{quote(step.participant_input)} is of type {shape}, and a participant's name is a string;"
            f" name a string of {input_type.full_name}",
        )


class ChosenParticipants:
    """The participants that an input chooses for the steps of one definition.

    Args:
        steps: all steps of the resolved definition.
        input_type: the type of its input.
    """

    def __init__(self, steps: Sequence[pb.Step], input_type: Descriptor) -> None:
        self._parse = message_class(input_type).FromString
        self._paths = {
            StepName(step.name): (step.participant_input, find_path(input_type, step.participant_input))
            for step in steps
            if step.participant_input
        }

    def __contains__(self, step: StepName) -> bool:
        """Whether the input chooses the participant of this step."""
        return step in self._paths

    def of(self, step: StepName, value: bytes) -> str:
        """Name of the participant that the input chooses for one of these steps.

        Raises:
            PayloadError: the input names none there, or doesn't parse.
        """
        return _named(self._parsed(value), *self._paths[step])

    def all(self, value: bytes) -> frozenset[str]:
        """Names of all participants that the input chooses.

        Raises:
            PayloadError: at one of the places it names none, or it doesn't parse.
        """
        if not self._paths:
            return frozenset()
        given = self._parsed(value)
        return frozenset(_named(given, *path) for path in self._paths.values())

    def _parsed(self, value: bytes) -> Message:
        try:
            return self._parse(value)
        except DecodeError as error:
            raise PayloadError("the input doesn't parse, so it chooses no participant") from error


def _named(given: Message, path: str, fields: Sequence[FieldDescriptor]) -> str:
    found: object = given
    for field in fields:
        found = getattr(found, field.name)
    name = str(found)
    if not PARTICIPANT_NAME.fullmatch(name):
        what = f"{quote(name)} is no participant's name" if name else "it is empty"
        reason = f"{what}, and it chooses the participant of a step; write [a-z][a-z0-9_-]{{0,63}}"
        raise PayloadError(reason, path=f"input.{path}")
    return name
