"""Types of proto2: what they require has to be filled, and what their text holds may hold up no commit."""

from __future__ import annotations

import pytest
from google.protobuf import text_format
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from amends.cli.errors import CommandError
from amends.cli.payloads import input_from_json
from amends.v1 import saga_definition_pb2 as pb
from amends_coordinator.core.ids import StepName
from amends_coordinator.core.states import Direction
from amends_coordinator.definitions.compiled import compile_definition
from amends_coordinator.definitions.errors import PayloadError
from amends_coordinator.definitions.registration import InvalidDefinitionError, resolve
from tests.unit.definitions.samples import definition, intent, saga, stored

OLDER = """
name: "older.proto" package: "older" syntax: "proto2"
message_type { name: "Ask" field { name: "id" number: 1 label: LABEL_REQUIRED type: TYPE_STRING } }
message_type { name: "Answer" field { name: "text" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING } }
message_type { name: "Told"
  field { name: "ask" number: 1 label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: ".older.Ask" }
  field { name: "count" number: 2 label: LABEL_REQUIRED type: TYPE_INT32 }
}
service { name: "Desk" method { name: "Do" input_type: ".older.Ask" output_type: ".older.Answer" } }
"""
NEWER = """
name: "newer.proto" package: "newer" syntax: "proto3"
message_type { name: "Ended" field { name: "text" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING } }
"""
FILES = FileDescriptorSet(file=[text_format.Parse(text, FileDescriptorProto()) for text in (OLDER, NEWER)])
COUNT = 'literals { type_url: "x/older.Told" value: "\\x10\\x00" }'
ANSWERED = 'bindings { target: "text" step_response { step: "do" path: "text" } }'


def written(request: str, output: str = "") -> pb.SagaDefinition:
    """One step whose request is built like this, perhaps with an output."""
    action = f'action {{ method: "older.Desk/Do" request {{ {request} }} }}'
    text = f'name: "old" input_type: "older.Ask" steps {{ name: "do" kind: STEP_KIND_RETRIABLE {action} }} {output}'
    made = definition(text)
    made.descriptors.CopyFrom(FILES)
    return made


BOUND = 'bindings { target: "id" input: "id" }'


@pytest.mark.parametrize(
    ("request_text", "told", "where", "missing"),
    [
        ("", f"{COUNT}", "steps[0].action.request", "older.Ask requires id"),
        (BOUND, "", "output", "older.Told requires count"),
        (
            BOUND,
            f'{COUNT} bindings {{ target: "count" default_value {{}} }}',
            "output",
            "older.Told requires count",
        ),
    ],
    ids=["nothing", "an output", "left empty"],
)
def test_what_is_required_has_to_be_filled(request_text: str, told: str, where: str, missing: str) -> None:
    """L1: a request that could never be sent, and an output that could never be built, are refused at registration."""
    output = f'output_type: "older.Told" output {{ {told} }}'
    with pytest.raises(InvalidDefinitionError) as caught:
        resolve(written(request_text, output))
    reason = f"{missing}, and nothing fills it; bind it, or give it a literal"
    assert [(fault.path, fault.description) for fault in caught.value.faults] == [(where, reason)]


def test_what_is_filled_in_part_or_as_a_whole_is_enough() -> None:
    """A literal fills a required field as a binding does; what is inside a message copied whole is its source's."""
    for ask in ('bindings { target: "ask" input: "" }', 'bindings { target: "ask.id" input: "id" }', ""):
        resolve(written(BOUND, f'output_type: "older.Told" output {{ {COUNT} {ask} }}'))


def test_no_value_of_an_answer_holds_up_a_commit() -> None:
    """L1: a saga whose steps have all succeeded commits, also if its output can't hold what one of them answered."""
    output = f'output_type: "newer.Ended" output {{ {ANSWERED} }}'
    of = compile_definition(stored(resolve(written(BOUND, output))))
    assert of.output(saga(of, b"", intent("do", b"", b"\n\x02ok"))) == b"\n\x02ok"
    # proto2 doesn't look at text, so this is an answer that parses.
    assert of.parser(StepName("do"), Direction.ACTION)(b"\n\x01\xff")
    assert of.output(saga(of, b"", intent("do", b"", b"\n\x01\xff"))) == b""
    told = compile_definition(
        stored(
            resolve(
                written(
                    BOUND,
                    f'output_type: "older.Told" output {{ {COUNT} '
                    'bindings { target: "ask" step_request { step: "do" path: "" } } }',
                )
            )
        )
    )
    assert told.output(saga(told, b"", intent("do", b"", b""))) == b"\n\x00\x10\x00"


def test_an_input_without_what_it_requires_is_told_what_that_is() -> None:
    """The input's fault names the fields, at the coordinator and on the command line."""
    resolved = resolve(written(BOUND))
    with pytest.raises(PayloadError, match=r"older\.Ask is missing required fields: id; fill them"):
        compile_definition(stored(resolved)).canonical_input("older.Ask", b"")
    with pytest.raises(CommandError, match=r"--input: .*older\.Ask is missing required fields: id"):
        input_from_json(resolved, "{}")
    assert input_from_json(resolved, '{"id": "a"}').value == b"\n\x01a"
