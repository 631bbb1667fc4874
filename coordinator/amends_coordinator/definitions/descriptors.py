"""Files of descriptors as values: their canonical form and digest, their order, what is in them, what contradicts what.

The same file has different bytes depending on where it comes from: generated code leaves out `json_name`, protoc and
reflection don't, and comments may be there or not. The canonical form has neither, so equal files have equal bytes.
Options that others have defined mean nothing here, aren't carried by JSON, and are written in another order by whoever
knows them; no comparison looks at them.
`google/protobuf/*` and our own annotations differ between releases and belong to no participant, so no comparison looks
at them.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from google.protobuf import descriptor_pb2, duration_pb2
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool

from amends.v1 import annotations_pb2
from amends_coordinator.definitions.classes import message_class
from amends_coordinator.definitions.errors import DescriptorError, quote
from amends_coordinator.definitions.fields import is_repeated

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from google.protobuf.descriptor_pb2 import FieldDescriptorProto
    from google.protobuf.message import Message

GOOGLE_FILES = "google/protobuf/"
ANNOTATIONS_FILE = annotations_pb2.DESCRIPTOR.name


@dataclass(frozen=True, slots=True)
class Fingerprints:
    """What a participant holds, to be compared: digests by file name, and (digest, file name) by full name."""

    files: Mapping[str, bytes]
    symbols: Mapping[str, tuple[bytes, str]]


def is_of_a_library(file_name: str) -> bool:
    """Whether a file comes with protobuf or with amends: another release of it is no other word of a participant."""
    return file_name.startswith(GOOGLE_FILES) or file_name == ANNOTATIONS_FILE


def is_of_every_server(service: str) -> bool:
    """Whether a service is one that any server may have and that no saga calls: health or reflection."""
    return service.startswith(("grpc.health.", "grpc.reflection."))


def is_readable(message: Message) -> bool:
    """Whether all text in a file is text. Descriptors are proto2, where broken UTF-8 parses and comes out as bytes."""
    for field, value in message.ListFields():
        values = value if is_repeated(field) else (value,)
        if field.type == FieldDescriptor.TYPE_STRING and not all(isinstance(text, str) for text in values):
            return False
        if field.type == FieldDescriptor.TYPE_MESSAGE and not all(is_readable(inner) for inner in values):
            return False
    return True


def readable_files(files: FileDescriptorSet) -> FileDescriptorSet:
    """The files in which all text is text."""
    return FileDescriptorSet(file=filter(is_readable, files.file))


def require_readable(files: FileDescriptorSet) -> None:
    """Refuse files whose text is not text, before anything reads it.

    Raises:
        DescriptorError: which file it is.
    """
    for index, file in enumerate(files.file):
        if not is_readable(file):
            raise DescriptorError(f"file {index} has text that is not UTF-8; send files as protoc makes them")


def canonical_file(file: FileDescriptorProto) -> FileDescriptorProto:
    """A copy without comments, positions and the `json_name`s that are what protobuf would choose anyway."""
    copy = FileDescriptorProto()
    copy.CopyFrom(file)
    copy.ClearField("source_code_info")
    _clear_json_names(copy.extension)
    for message in copy.message_type:
        _canonicalise_message(message)
    return copy


def comparable_file(file: FileDescriptorProto) -> FileDescriptorProto:
    """The canonical form without options that neither protobuf nor amends has defined, whatever this process knows."""
    known = _FILE_OF_FEW_OPTIONS.FromString(canonical_file(file).SerializeToString())
    known.DiscardUnknownFields()
    return FileDescriptorProto.FromString(known.SerializeToString())


def file_digest(file: FileDescriptorProto) -> str:
    """The fingerprint of a file's content: the same for generated code, protoc, reflection and JSON."""
    return hashlib.sha256(_bytes(comparable_file(file))).hexdigest()


def set_digest(files: FileDescriptorSet) -> str:
    """The fingerprint of files as they stand, protobuf's own included."""
    return hashlib.sha256(_bytes(files)).hexdigest()


def closure(names: Iterable[str], files: Mapping[str, FileDescriptorProto]) -> list[str]:
    """The named files and all that they import, each after its imports, in an order that depends on content alone.

    Raises:
        DescriptorError: a file is missing, or files import each other in a circle.
    """
    ordered: dict[str, None] = {}
    entered: set[str] = set()
    stack: list[tuple[str, str]] = [(name, "") for name in sorted(names, reverse=True)]
    while stack:
        name, wanted_by = stack[-1]
        if name in ordered:
            stack.pop()
        elif name in entered:
            stack.pop()
            ordered[name] = None
        else:
            entered.add(name)
            for needed in sorted(_file(name, wanted_by, files).dependency, reverse=True):
                if needed in entered and needed not in ordered:
                    raise DescriptorError(
                        f"file {quote(needed)} imports itself by way of {quote(name)}; end the circle"
                    )
                stack.append((needed, name))
    return list(ordered)


def add_file(pool: DescriptorPool, file: FileDescriptorProto) -> None:
    """Add a file whose imports the pool has.

    Raises:
        DescriptorError: protobuf refuses the file.
    """
    try:
        pool.AddSerializedFile(file.SerializeToString())
        pool.FindFileByName(file.name)
    except (TypeError, KeyError, ValueError) as error:
        raise DescriptorError(
            f"protobuf refuses file {quote(file.name)} ({quote(str(error))}); send files as protoc makes them"
        ) from error


def symbols_of(file: FileDescriptorProto) -> Iterator[tuple[str, Message]]:
    """Every message (nested ones too), enum, service and extension of a file, by full name."""
    prefix = f"{file.package}." if file.package else ""
    pending = [(prefix, message) for message in file.message_type]
    while pending:
        scope, message = pending.pop()
        full_name = f"{scope}{message.name}"
        yield full_name, message
        yield from ((f"{full_name}.{enum.name}", enum) for enum in message.enum_type)
        pending += ((f"{full_name}.", nested) for nested in message.nested_type)
    for enum in file.enum_type:
        yield f"{prefix}{enum.name}", enum
    for service in file.service:
        yield f"{prefix}{service.name}", service
    for extension in file.extension:
        yield f"{prefix}{extension.name}", extension


def services_of(files: FileDescriptorSet) -> frozenset[str]:
    """Full names of all services in these files.

    Raises:
        DescriptorError: they aren't readable.
    """
    require_readable(files)
    return frozenset(
        f"{file.package}.{service.name}" if file.package else service.name
        for file in files.file
        for service in file.service
    )


def conflicts(announced_by_others: Mapping[str, Fingerprints], new: Fingerprints) -> list[str]:
    """What a newly announced schema contradicts: a file or full name that another participant holds with other content.

    Args:
        announced_by_others: what the other participants hold, by the participants' names.
        new: what is announced.

    Returns:
        One sentence for each contradiction; empty: none.
    """
    found: list[str] = []
    for participant, held in sorted(announced_by_others.items()):
        clashing = {name for name, digest in new.files.items() if held.files.get(name, digest) != digest}
        found += (
            f"file {quote(name)} has other content at participant {quote(participant)}" for name in sorted(clashing)
        )
        found += (
            f"{quote(name)} is defined otherwise at participant {quote(participant)}"
            for name, (digest, file) in sorted(new.symbols.items())
            if file not in clashing and held.symbols.get(name, (digest, file))[0] != digest
        )
    return found


def fingerprints_of(files: FileDescriptorSet) -> Fingerprints:
    """What a participant holds. Large files take a tenth of a second, so whoever compares more than once keeps it.

    Raises:
        DescriptorError: they aren't readable.
    """
    require_readable(files)
    of_files: dict[str, bytes] = {}
    of_symbols: dict[str, tuple[bytes, str]] = {}
    for file in files.file:
        if is_of_a_library(file.name):
            continue
        canonical = comparable_file(file)
        of_files[file.name] = hashlib.sha256(_bytes(canonical)).digest()
        for full_name, symbol in symbols_of(canonical):
            of_symbols[full_name] = (hashlib.sha256(_bytes(symbol)).digest(), file.name)
    return Fingerprints(of_files, of_symbols)


def _file(name: str, wanted_by: str, files: Mapping[str, FileDescriptorProto]) -> FileDescriptorProto:
    file = files.get(name)
    if file is None:
        importer = f", which {quote(wanted_by)} imports," if wanted_by else ""
        raise DescriptorError(f"file {quote(name)}{importer} is not among the descriptors; send it too")
    return file


def _canonicalise_message(message: DescriptorProto) -> None:
    pending = [message]
    while pending:
        current = pending.pop()
        _clear_json_names(current.field)
        _clear_json_names(current.extension)
        pending += current.nested_type


def _clear_json_names(fields: Iterable[FieldDescriptorProto]) -> None:
    for field in fields:
        if field.json_name == _default_json_name(field.name):
            field.ClearField("json_name")


def _default_json_name(name: str) -> str:
    """What protobuf makes of a field's name: underscores go, the letter behind each is upper case."""
    first, *others = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in others)


def _files_of_few_options() -> type[Message]:
    """The class of files in a pool that knows no options but those of protobuf and ours."""
    pool = DescriptorPool()
    for module in (descriptor_pb2, duration_pb2, annotations_pb2):
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    return message_class(pool.FindMessageTypeByName(FileDescriptorProto.DESCRIPTOR.full_name))


_FILE_OF_FEW_OPTIONS = _files_of_few_options()


def _bytes(message: Message) -> bytes:
    return message.SerializeToString(deterministic=True)
