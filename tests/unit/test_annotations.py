"""Annotations that name methods which aren't there: protoc lets them pass, `amends generate` and `add()` don't."""

from __future__ import annotations

import pytest
from google.protobuf.descriptor_pb2 import ServiceDescriptorProto

from amends.annotations import unknown_methods
from amends.v1 import annotations_pb2


def annotated(**names: str) -> ServiceDescriptorProto:
    """A service whose `Hold` has these names in its annotation."""
    service = ServiceDescriptorProto(name="Tickets")
    for name in ("Hold", "Release", "Find"):
        service.method.add(name=name)
    service.method[0].options.Extensions[annotations_pb2.step].CopyFrom(annotations_pb2.StepOptions(**names))  # type: ignore[arg-type]  # only names
    return service


@pytest.mark.parametrize(
    "names",
    [
        {},
        {"compensation": "Release", "lookup": "Find"},
        {"compensation": "t.Tickets/Release"},
        {"compensation": "o.O/X"},
    ],
)
def test_names_that_are_there_or_elsewhere(names: dict[str, str]) -> None:
    """Methods of the service, by either name; those of other services are not judged."""
    assert not [*unknown_methods(annotated(**names), "t.Tickets")]


def test_names_that_are_not_there() -> None:
    """Each with what was most likely meant, or with what there is."""
    misspelt, elsewhere = unknown_methods(annotated(compensation="Relase", lookup="t.Tickets/Xyzzy"), "t.Tickets")
    assert misspelt == (
        "t.Tickets/Hold: the annotation (amends.v1.step) says compensation: 'Relase', but the service has no such "
        "method; did you mean 'Release'?"
    )
    assert elsewhere.endswith("the service has no such method; it has: Hold, Release, Find.")
