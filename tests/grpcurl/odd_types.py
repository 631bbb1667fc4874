"""Types of every shape that readers trip over, and payloads of them: those that can be shown, and those that can't."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from google.protobuf import text_format
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from amends.v1 import saga_definition_pb2
from amends_coordinator.definitions.classes import message_class
from amends_coordinator.definitions.schema import Schema
from scenario.v1 import scenario_pb2
from tests.unit.grpc_api.samples import SERVICE, files_of

ODD = """
syntax = "proto3";
package odd.v1;
import "google/protobuf/any.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/field_mask.proto";
import "google/protobuf/struct.proto";
import "google/protobuf/timestamp.proto";
import "odd/v1/older.proto";
message Odd {
  string name = 1;
  google.protobuf.Any any = 2;
  google.protobuf.Timestamp time = 3;
  google.protobuf.Duration duration = 4;
  google.protobuf.Value value = 5;
  google.protobuf.FieldMask mask = 6;
  Odd next = 7;
  Older older = 8;
  map<string, google.protobuf.Any> by_name = 9;
  double certainty = 10;
  repeated string words = 11;
}
"""
OLDER = """
syntax = "proto2";
package odd.v1;
message Older {
  optional string text = 1;
  optional group Pair = 2 { optional string left = 3; }
  optional Strict strict = 4;
  extensions 100 to 199;
}
message Strict { required string must = 1; }
extend Older { optional string more = 100; }
"""
DEFINITION = f"""
name: "odd"
input_type: "odd.v1.Odd"
steps {{ name: "do" action {{ method: "{SERVICE}/Do" request {{ bindings {{ target: "name" input: "name" }} }} }} }}
"""
# What a saga's input says, in protobuf's text format.
URL = "type.googleapis.com"
SHOWN = {
    "plain": 'name: "n"',
    "any": f'any {{ type_url: "{URL}/odd.v1.Odd" value: "\\n\\001n" }}',
    "any-in-any": f"""any {{
      type_url: "{URL}/google.protobuf.Any" value: "\\n\\036{URL}/odd.v1.Odd\\022\\003\\n\\001n"
    }}""",
    "any-in-map": f'by_name {{ key: "k" value {{ type_url: "{URL}/odd.v1.Odd" value: "\\n\\001n" }} }}',
    "any-of-time": f'any {{ type_url: "{URL}/google.protobuf.Timestamp" value: "\\b\\001" }}',
    "any-of-nothing": "any {}",
    "time": "time { seconds: 253402300799 nanos: 999999999 }",
    "duration": "duration { seconds: -315576000000 nanos: -1 }",
    "value": 'value { struct_value { fields { key: "a" value { null_value: NULL_VALUE } } } }',
    "mask": 'mask { paths: "foo_bar.baz" }',
    "number": "certainty: nan",
    "words": 'words: "a" words: "b"',
    "group": 'older { pair { left: "l" } }',
    "extension": 'older { [odd.v1.more]: "m" }',
    "deep": "next { " * 60 + "}" * 60,
}
AS_BYTES = {
    "any-garbage": f'any {{ type_url: "{URL}/odd.v1.Odd" value: "\\377" }}',
    "any-in-any-garbage": f"""any {{
      type_url: "{URL}/google.protobuf.Any" value: "\\n\\036{URL}/odd.v1.Odd\\022\\001\\377"
    }}""",
    "any-garbage-in-map": f'by_name {{ key: "k" value {{ type_url: "{URL}/odd.v1.Odd" value: "\\377" }} }}',
    "any-garbage-deep": "next { " * 9 + f'any {{ type_url: "{URL}/odd.v1.Odd" value: "\\377" }}' + "}" * 9,
    "any-without-required": f'any {{ type_url: "{URL}/odd.v1.Strict" }}',
    "any-time": f'any {{ type_url: "{URL}/google.protobuf.Timestamp" value: "\\020\\377\\377\\377\\377\\007" }}',
    "time-nanos": "time { nanos: 1000000000 }",
    "time-far": "time { seconds: 253402300800 }",
    "duration-far": "duration { seconds: 315576000001 }",
    "duration-both-ways": "duration { seconds: 1 nanos: -1 }",
    "value-of-no-kind": "value {}",
    "value-no-number": "value { list_value { values { number_value: inf } } }",
    "mask-one-way": 'mask { paths: "Foo_3" }',
}
NOWHERE = f'any {{ type_url: "{URL}/no.body.Knows" value: "abc" }}'
TEXT_THAT_IS_NONE = b"\x42\x04\x0a\x02\xff\xfe"
"""Of a proto2 message, whose text may be any bytes."""


@cache
def odd_files() -> FileDescriptorSet:
    """The files of these types, as protoc makes them, with all that they import, and those of the scenario."""
    with TemporaryDirectory() as folder:
        protos = Path(folder)
        (protos / "odd" / "v1").mkdir(parents=True)
        (protos / "odd" / "v1" / "odd.proto").write_text(ODD)
        (protos / "odd" / "v1" / "older.proto").write_text(OLDER)
        described = protos / "described"
        arguments = [f"-I{protos}", f"--descriptor_set_out={described}", "--include_imports", "odd/v1/odd.proto"]
        subprocess.run([sys.executable, "-m", "grpc_tools.protoc", *arguments], check=True)
        files = FileDescriptorSet.FromString(described.read_bytes())
    known = {file.name for file in files.file}
    files.file.extend(file for file in files_of(scenario_pb2.DESCRIPTOR).file if file.name not in known)
    return files


def odd_definition() -> saga_definition_pb2.SagaDefinition:
    """A definition whose input is of the oddest type."""
    definition = text_format.Parse(DEFINITION, saga_definition_pb2.SagaDefinition())
    definition.descriptors.CopyFrom(odd_files())
    return definition


def odd(text: str) -> bytes:
    """A payload that says this."""
    schema = Schema(odd_files())
    payload = message_class(schema.message("odd.v1.Odd"))()
    text_format.Parse(text, payload, descriptor_pool=schema.pool)
    return payload.SerializePartialToString()
