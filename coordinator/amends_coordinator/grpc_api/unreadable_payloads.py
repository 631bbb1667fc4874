"""Keeps one payload that doesn't parse from spoiling all that is shown beside it.

Payloads are parsed before they are stored, so only a row that somebody has damaged holds such bytes. Readers like
grpcurl answer one of them with an error and print nothing at all; so it is shown as what it is: bytes of no type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError
from google.protobuf.wrappers_pb2 import BytesValue

from amends_coordinator.definitions.classes import message_class
from amends_coordinator.definitions.errors import DescriptorError

if TYPE_CHECKING:
    from google.protobuf.any_pb2 import Any as AnyMessage

    from amends.v1 import saga_pb2
    from amends_coordinator.definitions.compiled import CompiledDefinition


def show_as_bytes(saga: saga_pb2.Saga, definition: CompiledDefinition) -> saga_pb2.Saga:
    """The saga itself, in which every payload that doesn't parse as its type has become a `google.protobuf.BytesValue`.

    Args:
        saga: with its rows; it is changed.
        definition: knows the types.
    """
    payloads = [saga.input, saga.output]
    for intent in saga.intents:
        payloads += (intent.request, intent.response)
    for payload in payloads:
        if payload.type_url and not _parses(payload, definition):
            payload.Pack(BytesValue(value=payload.value))
    return saga


def _parses(payload: AnyMessage, definition: CompiledDefinition) -> bool:
    try:
        message_class(definition.schema.message(payload.TypeName())).FromString(payload.value)
    except (DecodeError, DescriptorError):
        return False
    return True
