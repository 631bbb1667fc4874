"""Collects the descriptors that a definition needs, so that the coordinator can read every message without our code."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from google.protobuf import descriptor_pb2

from amends.v1 import annotations_pb2

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from google.protobuf.descriptor import Descriptor, FileDescriptor, MethodDescriptor
    from google.protobuf.message import Message


def descriptor_of(message_type: type[Message]) -> Descriptor:
    """A message class's descriptor, under the one of its two types that all its parts are annotated with."""
    return cast("Descriptor", message_type.DESCRIPTOR)


def descriptor_set(files: Iterable[FileDescriptor]) -> descriptor_pb2.FileDescriptorSet:
    """The files and all that they depend on, each once, dependencies first, in an order that names alone decide."""
    ordered: dict[str, FileDescriptor] = {}
    for file in sorted(files, key=lambda file: file.name):
        _add(file, ordered)
    collected = descriptor_pb2.FileDescriptorSet()
    for file in ordered.values():
        collected.file.add().MergeFromString(file.serialized_pb)
    return collected


def _add(file: FileDescriptor, ordered: dict[str, FileDescriptor]) -> None:
    if file.name in ordered:
        return
    for dependency in sorted(file.dependencies, key=lambda dependency: dependency.name):
        _add(dependency, ordered)
    ordered[file.name] = file


def step_options(method: MethodDescriptor) -> annotations_pb2.StepOptions:
    """What the method's annotation says; all unset if it has none."""
    return method.GetOptions().Extensions[annotations_pb2.step]


def annotated_files(method: MethodDescriptor) -> Iterator[FileDescriptor]:
    """The files of the services whose methods the annotation names in full, as far as this process has loaded them."""
    options = step_options(method)
    for name in (options.compensation, options.lookup):
        service, _, _ = name.rpartition("/")
        if not service:
            continue
        try:
            yield method.containing_service.file.pool.FindServiceByName(service).file
        except KeyError:
            # Not loaded here: the coordinator finds it among what participants announced, or reports it.
            continue
