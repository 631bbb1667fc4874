"""Finds files of descriptors by what is in them: by name, by symbol, by extension. What server reflection answers from.

It works on the files as values and never builds a descriptor pool, which holds one file of a name for ever: here each
name has the file of the first source that brings it, so that whoever asks never gets two contents under one name, and a
source that comes later only adds what is missing; what a file of one name has lost since stands in a file beside it.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto

from amends_coordinator.definitions.descriptors import is_readable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from google.protobuf.descriptor_pb2 import EnumDescriptorProto, FieldDescriptorProto, FileDescriptorSet


class FileIndex:
    """What is in the files of one source. Files whose text is no text are left out.

    Args:
        files: in any order.
    """

    def __init__(self, files: Iterable[FileDescriptorProto]) -> None:
        self.files: dict[str, FileDescriptorProto] = {}
        self.file_of_symbol: dict[str, str] = {}
        self.extensions: dict[str, dict[int, str]] = {}
        self._serialised: dict[str, bytes] = {}
        for file in files:
            if file.name not in self.files and is_readable(file):
                self._add(file)

    @classmethod
    def of(cls, files: FileDescriptorSet) -> FileIndex:
        """The index of a set of files."""
        return cls(files.file)

    def serialised(self, name: str) -> bytes:
        """A file of this source as readers are sent it, with its JSON names; made once, as it is asked for again and
        again and takes milliseconds where it is large.
        """
        if name not in self._serialised:
            self._serialised[name] = with_json_names(self.files[name]).SerializeToString()
        return self._serialised[name]

    def add_beside(self, lost: FileDescriptorProto) -> FileDescriptorProto:
        """Keep what another source's file of this name hasn't, under a name that says what is in it."""
        name = f"{lost.name}.{sha256(lost.SerializeToString(deterministic=True)).hexdigest()[:16]}"
        if name not in self.files:
            lost.name = name
            self.files[name] = lost
        return self.files[name]

    def _add(self, file: FileDescriptorProto) -> None:
        self.files[file.name] = file
        for name in _symbols(file):
            self.file_of_symbol.setdefault(name, file.name)
        for extension in _extensions(file):
            numbers = self.extensions.setdefault(extension.extendee.lstrip("."), {})
            numbers.setdefault(extension.number, file.name)


class TypeIndex:
    """Several sources, looked through in order.

    Args:
        sources: those that come first win where two have a file of one name.
    """

    def __init__(self, sources: Sequence[FileIndex]) -> None:
        self._sources = sources

    def file(self, name: str) -> FileDescriptorProto | None:
        """The file of this name."""
        return next((source.files[name] for source in self._sources if name in source.files), None)

    def serialised(self, file: FileDescriptorProto) -> bytes:
        """One of the files that the other methods answer, as readers are sent it."""
        return next(source.serialised(file.name) for source in self._sources if file.name in source.files)

    def file_of_symbol(self, symbol: str) -> FileDescriptorProto | None:
        """The file that defines a message, enum, service, extension, or a method, field or value of one.

        Where the file of that name comes from an earlier source and hasn't this symbol any more, the answer is a file
        beside it with what it has lost: a saga of last year is read with types that its service has long dropped.
        """
        symbol = symbol.lstrip(".")
        return self._served_with(symbol) or next(filter(None, self._lost_files(symbol)), None)

    def _served_with(self, symbol: str) -> FileDescriptorProto | None:
        for source in self._sources:
            name = source.file_of_symbol.get(symbol)
            found = None if name is None else self.file(name)
            if found is not None and (found is source.files[name or ""] or symbol in set(_symbols(found))):
                return found
        return None

    def _lost_files(self, symbol: str) -> Iterator[FileDescriptorProto | None]:
        for source in self._sources:
            name = source.file_of_symbol.get(symbol)
            if name is not None:
                lost = self._lost(source.files[name])
                if symbol in set(_symbols(lost)):
                    yield source.add_beside(lost)

    def _lost(self, old: FileDescriptorProto) -> FileDescriptorProto:
        """What an old file defines at its top and no served file does, as a file that imports the one of its name."""
        lost = FileDescriptorProto()
        lost.CopyFrom(old)
        prefix = f"{old.package}." if old.package else ""
        for each in (lost.message_type, lost.enum_type, lost.service):
            for index in reversed(range(len(each))):
                if self._served_with(f"{prefix}{each[index].name}") is not None:
                    del each[index]
        for field in ("extension", "public_dependency", "weak_dependency", "source_code_info"):
            lost.ClearField(field)
        if old.name not in lost.dependency:
            lost.dependency.append(old.name)
        return lost

    def file_of_extension(self, extendee: str, number: int) -> FileDescriptorProto | None:
        """The file that defines the extension of a message with this field number."""
        extendee = extendee.lstrip(".")
        for source in self._sources:
            name = source.extensions.get(extendee, {}).get(number)
            found = None if name is None else self.file(name)
            # As above: the file of this name may come from an earlier source that hasn't this extension.
            if found is not None and any(
                (each.extendee.lstrip("."), each.number) == (extendee, number) for each in _extensions(found)
            ):
                return found
        return None

    def extension_numbers(self, extendee: str) -> list[int]:
        """The field numbers of all extensions of a message that are known, in order; empty for a message without."""
        numbers = {number for source in self._sources for number in source.extensions.get(extendee.lstrip("."), ())}
        return sorted(number for number in numbers if self.file_of_extension(extendee, number) is not None)

    def with_imports(self, file: FileDescriptorProto) -> list[FileDescriptorProto]:
        """A file and all that it imports, as far as they are known, each after its imports."""
        ordered: dict[str, FileDescriptorProto] = {}
        entered = {file.name}
        stack: list[tuple[FileDescriptorProto, Iterator[str]]] = [(file, iter(file.dependency))]
        while stack:
            current, imports = stack[-1]
            name = next(imports, None)
            if name is None:
                ordered[current.name] = current
                stack.pop()
            elif name not in entered and (imported := self.file(name)) is not None:
                entered.add(name)
                stack.append((imported, iter(imported.dependency)))
        return list(ordered.values())


def with_json_names(file: FileDescriptorProto) -> FileDescriptorProto:
    """A copy in which every field has its JSON name: generated code leaves it out, and readers would then show our
    fields in another spelling than those of others.
    """
    copy = FileDescriptorProto()
    copy.CopyFrom(file)
    fields = [field for message in _messages(copy) for field in (*message.field, *message.extension)]
    for field in (*fields, *copy.extension):
        if not field.HasField("json_name"):
            first, *others = field.name.split("_")
            field.json_name = first + "".join(part[:1].upper() + part[1:] for part in others)
    return copy


def _symbols(file: FileDescriptorProto) -> Iterator[str]:
    prefix = f"{file.package}." if file.package else ""
    yield from (f"{prefix}{extension.name}" for extension in file.extension)
    for enum in file.enum_type:
        yield from _symbols_of_enum(prefix, enum)
    for service in file.service:
        yield f"{prefix}{service.name}"
        yield from (f"{prefix}{service.name}.{method.name}" for method in service.method)
    pending = [(prefix, message) for message in file.message_type]
    while pending:
        scope, message = pending.pop()
        inner = f"{scope}{message.name}."
        yield inner[:-1]
        yield from (f"{inner}{field.name}" for field in (*message.field, *message.extension))
        yield from (f"{inner}{oneof.name}" for oneof in message.oneof_decl)
        for enum in message.enum_type:
            yield from _symbols_of_enum(inner, enum)
        pending += ((inner, nested) for nested in message.nested_type)


def _symbols_of_enum(scope: str, enum: EnumDescriptorProto) -> Iterator[str]:
    """An enum and its values, which protobuf names beside the enum; people also write them below it."""
    yield f"{scope}{enum.name}"
    for value in enum.value:
        yield f"{scope}{value.name}"
        yield f"{scope}{enum.name}.{value.name}"


def _extensions(file: FileDescriptorProto) -> Iterator[FieldDescriptorProto]:
    yield from file.extension
    for message in _messages(file):
        yield from message.extension


def _messages(file: FileDescriptorProto) -> Iterator[DescriptorProto]:
    pending = list(file.message_type)
    while pending:
        message = pending.pop()
        yield message
        pending += message.nested_type
