"""Types are found by everything that people ask for, and one name never has two contents."""

from __future__ import annotations

import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool

from amends_coordinator.definitions.type_index import FileIndex, TypeIndex, with_json_names
from scenario.v1 import scenario_pb2
from tests.unit.grpc_api.samples import files_of
from typed.v1 import typed_pb2

SCENARIO = "scenario/v1/scenario.proto"


def index(*files: FileDescriptorProto) -> TypeIndex:
    """One source with these files."""
    return TypeIndex([FileIndex(files)])


def scenario() -> TypeIndex:
    """The scenario's files with all that they import."""
    return TypeIndex([FileIndex.of(files_of(scenario_pb2.DESCRIPTOR, typed_pb2.DESCRIPTOR))])


def small(name: str, *, message: str = "M", field: str = "field_one", package: str = "p") -> FileDescriptorProto:
    """A file with one message with one field."""
    file = FileDescriptorProto(name=name, package=package, syntax="proto3")
    kind = FieldDescriptorProto.TYPE_STRING
    file.message_type.add(name=message).field.add(name=field, number=1, type=kind, label=1)
    return file


@pytest.mark.parametrize(
    "symbol",
    [
        "scenario.v1.DoRequest",
        ".scenario.v1.DoRequest",
        "scenario.v1.StepService",
        "scenario.v1.StepService.Do",
        "scenario.v1.DoRequest.name",
    ],
)
def test_symbols_of_every_kind_are_found(symbol: str) -> None:
    """Messages, services, and what is in them: a pool of protobuf's finds no methods."""
    found = scenario().file_of_symbol(symbol)
    assert found is not None
    assert found.name == SCENARIO


@pytest.mark.parametrize(
    "symbol", ["", "scenario.v1", "scenario.v1.Nothing", "scenario.v1.DoRequest.nothing", "DoRequest"]
)
def test_what_is_not_there_is_not_found(symbol: str) -> None:
    """An unknown symbol has no file."""
    assert scenario().file_of_symbol(symbol) is None


def test_values_of_enums_are_found_as_protobuf_and_as_people_name_them() -> None:
    """A value stands beside its enum in protobuf's names."""
    file = small("e.proto")
    file.enum_type.add(name="Colour").value.add(name="COLOUR_RED", number=0)
    assert index(file).file_of_symbol("p.COLOUR_RED") is file
    assert index(file).file_of_symbol("p.Colour.COLOUR_RED") is file


def test_imports_come_before_what_imports_them() -> None:
    """A reader can load the files in the order in which they come."""
    types = scenario()
    file = types.file(SCENARIO)
    assert file is not None
    names = [each.name for each in types.with_imports(file)]
    assert names[-1] == SCENARIO
    assert "amends/v1/annotations.proto" in names
    assert all(names.index(needed) < names.index(SCENARIO) for needed in file.dependency)


def test_files_that_import_each_other_end() -> None:
    """Somebody's circle must not keep the coordinator busy for ever."""
    one, two = small("one.proto"), small("two.proto", package="q")
    one.dependency.append("two.proto")
    two.dependency.append("one.proto")
    assert {file.name for file in index(one, two).with_imports(one)} == {"one.proto", "two.proto"}


def test_a_name_has_the_content_of_the_first_source() -> None:
    """A reader keeps files by name: two contents under one name made grpcurl show wrong values."""
    new, old = small("m.proto", field="new"), small("m.proto", field="old")
    types = TypeIndex([FileIndex([new]), FileIndex([old])])
    assert types.file("m.proto") is new
    assert types.file_of_symbol("p.M") is new
    assert types.file_of_symbol("p.M.old") is None


def test_later_sources_add_what_is_missing() -> None:
    """A type that only an old definition still has is found."""
    old = small("old.proto", message="Old")
    types = TypeIndex([FileIndex([small("m.proto")]), FileIndex([old])])
    assert types.file_of_symbol("p.Old") is old


def test_what_a_file_has_lost_stands_beside_it() -> None:
    """A message that its service has dropped is still read in the sagas of last year, and no name is defined twice."""
    new, old, moved = small("m.proto", field="new"), small("m.proto", field="old"), small("n.proto", message="Moved")
    for name in ("Gone", "Moved"):
        old.message_type.add(name=name).field.add(name="m", number=1, type_name=".p.M", type=11, label=1)
    types = TypeIndex([FileIndex([new, moved]), FileIndex([old])])
    lost = types.file_of_symbol("p.Gone")
    assert lost is not None
    assert types.file_of_symbol("p.Gone") is lost
    assert types.file(lost.name) is lost
    assert types.file_of_symbol("p.Moved") is moved
    pool = DescriptorPool()
    for file in types.with_imports(lost):
        pool.AddSerializedFile(types.serialised(file))
    gone = pool.FindMessageTypeByName("p.Gone")
    inner = gone.fields_by_name["m"].message_type
    assert inner is not None
    assert [*inner.fields_by_name] == ["new"]
    pool.AddSerializedFile(types.serialised(moved))


def test_extensions_are_found_by_number() -> None:
    """The annotations of a method can be shown."""
    types = scenario()
    assert len(types.extension_numbers("google.protobuf.MethodOptions")) > 0
    number = types.extension_numbers("google.protobuf.MethodOptions")[0]
    found = types.file_of_extension("google.protobuf.MethodOptions", number)
    assert found is not None
    assert found.name == "amends/v1/annotations.proto"
    assert types.extension_numbers("scenario.v1.DoRequest") == []


def test_an_extension_that_the_served_file_has_no_more_is_not_known() -> None:
    """A reader that was sent a file without the extension that it had asked for failed on its whole answer."""
    old = small("x.proto")
    old.extension.add(name="more", number=100, extendee=".p.M", type=FieldDescriptorProto.TYPE_STRING, label=1)
    assert index(old).file_of_extension("p.M", 100) is old
    types = TypeIndex([FileIndex([small("x.proto")]), FileIndex([old])])
    assert types.file_of_extension("p.M", 100) is None
    assert types.extension_numbers("p.M") == []


def test_every_field_gets_its_json_name() -> None:
    """Generated code leaves it out: our fields would be shown in another spelling than those of others."""
    file = small("j.proto", field="reservation_id")
    assert with_json_names(file).message_type[0].field[0].json_name == "reservationId"
    assert not file.message_type[0].field[0].HasField("json_name")
