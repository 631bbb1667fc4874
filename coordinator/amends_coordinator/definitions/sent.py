"""Registration's checks of what was sent, before anything of it is looked up: files, and fields that nobody knows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.unknown_fields import UnknownFieldSet

from amends_coordinator.definitions.descriptors import file_digest, is_readable
from amends_coordinator.definitions.errors import quote
from amends_coordinator.definitions.fields import is_repeated

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from amends_coordinator.definitions.errors import FaultList


def check_files(files: FileDescriptorSet, faults: FaultList) -> None:
    """One name, one content: protobuf would take the first and never look at the second."""
    digests: dict[str, str] = {}
    for index, file in enumerate(files.file):
        if not is_readable(file):
            faults.add(f"descriptors.file[{index}]", "it has text that is not UTF-8; send files as protoc makes them")
            continue
        digest = file_digest(file)
        if digests.setdefault(file.name, digest) != digest:
            faults.add(
                f"descriptors.file[{index}]", f"{quote(file.name)} is there twice with different content; send it once"
            )


def check_unknown_fields(message: Message, path: str, faults: FaultList) -> None:
    """A field that this release doesn't know would be dropped unseen, so it is refused (descriptors may have some)."""
    unknown = UnknownFieldSet(message)
    for index in range(len(unknown)):
        reason = f"this release doesn't know its field number {unknown[index].field_number}"
        faults.add(path, f"{reason}; leave it out, or use a newer coordinator")
    for field, value in message.ListFields():
        if field.message_type is None or field.message_type.full_name == FileDescriptorSet.DESCRIPTOR.full_name:
            continue
        place = f"{path}.{field.name}" if path else field.name
        if is_repeated(field):
            for index, each in enumerate(value):
                check_unknown_fields(each, f"{place}[{index}]", faults)
        else:
            check_unknown_fields(value, place, faults)
