"""Reads the annotations of a service's methods for mistakes that protoc lets pass: names are only strings to it."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches

from google.protobuf.descriptor_pb2 import MethodDescriptorProto, ServiceDescriptorProto

from amends.v1 import annotations_pb2


def unknown_methods(service: ServiceDescriptorProto, full_name: str) -> Iterator[str]:
    """A sentence for each annotation that names a method which the service doesn't have.

    Methods of other services can't be judged here; registration does, when a saga uses them.

    Arguments:
        service: the service, with its options.
        full_name: its name with its package.
    """
    known = [method.name for method in service.method]
    for method in service.method:
        for field, named in _named(method):
            own = named.removeprefix(f"{full_name}/")
            if "/" in own or own in known:
                continue
            near = get_close_matches(own, known, n=1)
            advice = f"did you mean {near[0]!r}?" if near else f"it has: {', '.join(known)}."
            yield (
                f"{full_name}/{method.name}: the annotation (amends.v1.step) says {field}: {named!r}, "
                f"but the service has no such method; {advice}"
            )


def _named(method: MethodDescriptorProto) -> Iterator[tuple[str, str]]:
    if method.options.HasExtension(annotations_pb2.step):
        options = method.options.Extensions[annotations_pb2.step]
        for field, named in (("compensation", options.compensation), ("lookup", options.lookup)):
            if named:
                yield field, named
