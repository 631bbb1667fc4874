"""Files of descriptors: their order, their fingerprints, and who contradicts whom."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from hypothesis import given
from hypothesis import strategies as st

from amends.v1 import annotations_pb2
from amends_coordinator.definitions.descriptors import conflicts, file_digest, fingerprints_of, services_of
from amends_coordinator.definitions.errors import DescriptorError
from amends_coordinator.definitions.registration import Fault, InvalidDefinitionError, resolve
from amends_coordinator.definitions.schema import Schema
from tests.unit.definitions.samples import ANNOUNCED, PACKAGE, SERVICE, definition

if TYPE_CHECKING:
    from collections.abc import Callable


def money(*fields: str, name: str = "common/money.proto") -> FileDescriptorSet:
    """A participant's file with a type `common.Money` of these fields."""
    file = FileDescriptorProto(name=name, package="common", syntax="proto3")
    message = file.message_type.add(name="Money")
    for number, field in enumerate(fields, start=1):
        message.field.add(name=field, number=number, type=3, label=1)
    return FileDescriptorSet(file=[file])


@given(st.permutations(range(len(ANNOUNCED.file))))
def test_a_pool_is_built_whatever_the_order(order: list[int]) -> None:
    """Promise: participants may announce their files in any order."""
    schema = Schema(FileDescriptorSet(file=[ANNOUNCED.file[index] for index in order]))
    assert schema.method(f"{SERVICE}/Book").input_type.full_name == f"{PACKAGE}.BookRequest"


def test_files_that_are_missing_or_go_in_a_circle_are_refused() -> None:
    """L2: whatever a participant announces ends in a clear error."""
    missing = FileDescriptorSet(file=[FileDescriptorProto(name="a.proto", dependency=["b.proto"])])
    missing.file[0].message_type.add(name="A")
    with pytest.raises(DescriptorError, match=r"file 'b.proto', which 'a.proto' imports, is not among the descriptors"):
        Schema(missing).message("A")
    missing.file.add(name="b.proto", dependency=["a.proto"])
    with pytest.raises(DescriptorError, match="end the circle"):
        Schema(missing).message("A")
    chain = FileDescriptorSet(
        file=[
            FileDescriptorProto(name=f"{index}", dependency=[f"{index + 1}"] * (index < 5_000))
            for index in range(5_001)
        ]
    )
    chain.file[0].message_type.add(name="A")
    assert Schema(chain).message("A").full_name == "A"


def test_comments_and_default_json_names_are_no_content() -> None:
    """Promise: the same file has one fingerprint, from generated code, protoc or reflection."""
    plain, rich = money("units_whole").file[0], money("units_whole").file[0]
    rich.source_code_info.location.add(leading_comments="what it is")
    rich.message_type[0].field[0].json_name = "unitsWhole"
    assert file_digest(plain) == file_digest(rich)
    rich.message_type[0].field[0].json_name = "u"
    assert file_digest(plain) != file_digest(rich)


def test_services_are_listed_by_full_name() -> None:
    """Promise: a participant's services are those in its files."""
    assert services_of(ANNOUNCED) == {SERVICE}


def test_two_participants_may_share_a_file_only_if_it_is_the_same() -> None:
    """Promise: no two participants hold one name with different content, or tools would read payloads wrongly."""
    others = {"payments": fingerprints_of(money("units", "nanos"))}
    assert conflicts(others, fingerprints_of(money("units", "nanos"))) == []
    assert conflicts(others, fingerprints_of(money("units", "nanos", name="elsewhere.proto"))) == []
    assert conflicts({}, fingerprints_of(money("units"))) == []
    assert conflicts(others, fingerprints_of(money("amount"))) == [
        "file 'common/money.proto' has other content at participant 'payments'"
    ]
    assert conflicts(others, fingerprints_of(money("amount", name="elsewhere.proto"))) == [
        "'common.Money' is defined otherwise at participant 'payments'"
    ]


def test_protobufs_own_files_never_conflict() -> None:
    """Promise: participants built with different releases of protobuf can serve one coordinator."""
    older = FileDescriptorSet(
        file=[FileDescriptorProto(name="google/protobuf/descriptor.proto", package="google.protobuf")]
    )
    newer = FileDescriptorSet()
    newer.CopyFrom(older)
    newer.file[0].message_type.add(name="FeatureSet")
    assert conflicts({"payments": fingerprints_of(older)}, fingerprints_of(newer)) == []


def test_our_own_annotations_never_conflict() -> None:
    """L2: a participant that is built with a newer release of amends is no stranger to one with an older."""
    newer, older = FileDescriptorSet(), FileDescriptorSet()
    annotations_pb2.DESCRIPTOR.CopyToProto(newer.file.add())
    annotations_pb2.DESCRIPTOR.CopyToProto(older.file.add())
    del older.file[0].message_type[0].field[4:]
    assert file_digest(newer.file[0]) != file_digest(older.file[0])
    assert conflicts({"payments": fingerprints_of(older)}, fingerprints_of(newer)) == []


def test_broken_text_in_descriptors_is_refused() -> None:
    """L2: descriptors are proto2, where broken UTF-8 parses; it is refused before anything reads it as text."""
    for broken in (b"\x0a\x01\xff", b"\x22\x03\x0a\x01\xff", b"\x1a\x01\xff"):
        files = FileDescriptorSet()
        files.CopyFrom(ANNOUNCED)
        files.file[0].MergeFromString(broken)
        readers: tuple[Callable[[FileDescriptorSet], object], ...] = (services_of, fingerprints_of)
        for read in readers:
            with pytest.raises(DescriptorError, match="file 0 has text that is not UTF-8"):
                read(files)
        written = definition()
        written.descriptors.CopyFrom(files)
        with pytest.raises(InvalidDefinitionError) as caught:
            resolve(written, announced=[files])
        assert Fault("descriptors.file[0]", "it has text that is not UTF-8; send files as protoc makes them") in (
            caught.value.faults
        )
