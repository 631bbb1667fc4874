"""Message classes of descriptors, however many types lead from one to the next.

protobuf makes the classes of a message's fields by calling itself for each, so that a few hundred types that lead from
one to the next end in a `RecursionError`; large schemas have such chains.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

if TYPE_CHECKING:
    from collections.abc import Iterator

    from google.protobuf.descriptor import Descriptor

# Any: the stubs know message classes, but not what makes them.
_MAKE: Any = type(FileDescriptorProto)
"""What makes message classes; each is then found at its descriptor."""


def message_class(descriptor: Descriptor) -> type[Message]:
    """The class of a message: the same whenever it is asked for."""
    if _has_class(descriptor):
        return GetMessageClass(descriptor)
    reached = {descriptor.full_name}
    pending = [descriptor]
    while pending:
        current = pending.pop()
        _MAKE(current.name, (Message,), {"DESCRIPTOR": current, "__module__": None})
        for inner in _used_by(current):
            if inner.full_name not in reached and not _has_class(inner):
                reached.add(inner.full_name)
                pending.append(inner)
    return GetMessageClass(descriptor)


def _used_by(message: Descriptor) -> Iterator[Descriptor]:
    """The messages in a message's fields, and those that the extensions in its scope are of and belong to."""
    yield from (field.message_type for field in message.fields if field.message_type is not None)
    for extension in message.extensions:
        yield from (each for each in (extension.containing_type, extension.message_type) if each is not None)


def _has_class(descriptor: Descriptor) -> bool:
    return getattr(descriptor, "_concrete_class", None) is not None
