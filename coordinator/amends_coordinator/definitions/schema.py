"""The types and methods of one definition: a descriptor pool that loads only the files that are asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from google.protobuf import (
    any_pb2,
    descriptor_pb2,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool

from amends.v1 import annotations_pb2
from amends_coordinator.definitions.descriptors import add_file, canonical_file, closure, symbols_of
from amends_coordinator.definitions.errors import DescriptorError, did_you_mean, listing, nearest, quote

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, MethodDescriptor, ServiceDescriptor

KNOWN_EVERYWHERE = {
    module.DESCRIPTOR.name: module.DESCRIPTOR
    for module in (
        any_pb2,
        descriptor_pb2,
        duration_pb2,
        empty_pb2,
        field_mask_pb2,
        struct_pb2,
        timestamp_pb2,
        wrappers_pb2,
        annotations_pb2,
    )
}
"""Files that need not be sent: they are part of protobuf, or ours."""


class Schema:
    """Finds messages and methods by name. Where two sets hold one file or one name, the first set wins.

    Takes readable files only; see `readable_files`.
    """

    def __init__(self, *sets: FileDescriptorSet) -> None:
        self._files: dict[str, FileDescriptorProto] = {}
        self._file_of: dict[str, str] = {}
        self._pool = DescriptorPool()
        self._loaded: dict[str, None] = {}
        for files in sets:
            for file in files.file:
                self._index(file)
        for name, known in KNOWN_EVERYWHERE.items():
            if name not in self._files:
                self._index(FileDescriptorProto.FromString(known.serialized_pb))

    @property
    def pool(self) -> DescriptorPool:
        """The descriptors that were needed so far."""
        return self._pool

    def message(self, full_name: str) -> Descriptor:
        """The message of this name.

        Raises:
            DescriptorError: there is none, or its file can't be loaded.
        """
        self._load(full_name, what="message type")
        try:
            return self._pool.FindMessageTypeByName(full_name)
        except KeyError as error:
            raise DescriptorError(f"{quote(full_name)} is no message type; give the full name of one") from error

    def method(self, full_name: str) -> MethodDescriptor:
        """The method "package.Service/Method".

        Raises:
            DescriptorError: there is none, or its file can't be loaded.
        """
        service_name, slash, name = full_name.partition("/")
        if not (service_name and slash and name) or "/" in name:
            raise DescriptorError(f"{quote(full_name)} is no method; write it as {self._as_method(full_name)}")
        service = self.service(service_name)
        method = service.methods_by_name.get(name)
        if method is None:
            known = sorted(service.methods_by_name)
            instead = did_you_mean(name, known) or f"; name one of those it has: {listing(known)}"
            raise DescriptorError(f"service {service_name} has no method {quote(name)}{instead}")
        return method

    def service(self, full_name: str) -> ServiceDescriptor:
        """The service of this name.

        Raises:
            DescriptorError: there is none, or its file can't be loaded.
        """
        self._load(full_name, what="service")
        try:
            return self._pool.FindServiceByName(full_name)
        except KeyError as error:
            raise DescriptorError(f"{quote(full_name)} is no service; give the full name of one") from error

    def used_files(self) -> FileDescriptorSet:
        """The files that were needed so far, canonical, each after its imports."""
        ordered = closure(self._loaded, self._files)
        return FileDescriptorSet(file=(canonical_file(self._files[name]) for name in ordered))

    def _as_method(self, written: str) -> str:
        """How to write a method that is written as gRPC or Python write it, if there is one."""
        service, _, name = written.strip("/").replace("/", ".").rpartition(".")
        return f'"{service}/{name}"' if service in self._file_of else '"package.Service/Method"'

    def _instead(self, full_name: str) -> str:
        """What to write instead of a name that is nowhere."""
        bare = full_name.rpartition("/")[2].lstrip(".")
        if bare in self._file_of:
            return f"; write it as {bare!r}"
        scope, _, name = full_name.rpartition(".")
        # The package alone would make all names in it look alike.
        short = {each.rpartition(".")[2]: each for each in self._file_of if each.rpartition(".")[0] == scope}
        elsewhere = [each for each in self._file_of if each.rpartition(".")[2] == name]
        found = elsewhere[:1] or [short[near] for near in nearest(name, short)]
        likely = f": did you mean {found[0]!r}? Else" if found else "; correct the name, or"
        return f"{likely} send the file that defines it"

    def _index(self, file: FileDescriptorProto) -> None:
        if file.name in self._files:
            return
        self._files[file.name] = file
        for full_name, _ in symbols_of(file):
            self._file_of.setdefault(full_name, file.name)

    def _load(self, full_name: str, *, what: str) -> None:
        file_name = self._file_of.get(full_name)
        if file_name is None:
            nowhere = f"no {what} {quote(full_name)} in the descriptors or at any participant"
            raise DescriptorError(f"{nowhere}{self._instead(full_name)}")
        if file_name in self._loaded:
            return
        for name in closure((file_name,), self._files):
            if name not in self._loaded:
                add_file(self._pool, self._files[name])
                self._loaded[name] = None
