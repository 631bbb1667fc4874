"""Malformed definitions: every fault at once, each with its path, what is wrong and what to do.

Each file in `malformed/` is a definition with a mistake that people make, or a family of them; its lines that begin
with `#!` are the faults that are to be found in it. Whoever changes a sentence on purpose has them written anew, and
reads what has changed: `AMENDS_REWRITE_SNAPSHOTS=1 make test ARGS=tests/unit/definitions`.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from google.protobuf.message import DecodeError
from hypothesis import event, given, reject
from hypothesis import strategies as st

from amends.v1 import saga_definition_pb2 as pb
from amends_coordinator.definitions.compiled import compile_definition
from amends_coordinator.definitions.outlook import outlook_of
from amends_coordinator.definitions.registration import InvalidDefinitionError, resolve
from tests.unit.definitions.samples import ANNOUNCED, PACKAGE, SERVICE, TRIP, definition, stored

RICH = f"""{TRIP}
on_compensated {{ name: "sorry" action {{ method: "{SERVICE}/Everything" request {{
  bindings {{ target: "key" failure: FAILURE_FIELD_REASON }} }} }} }}
on_compensated {{ name: "too" after_none: true guarantee: GUARANTEE_NONE action {{ method: "{SERVICE}/Hold" }} }}
steps {{ name: "beside" after: "pay" kind: STEP_KIND_READ_ONLY action {{ method: "{SERVICE}/Everything" }} }}
"""
HELD = f"""
steps {{ name: "hold" on_unknown: ON_UNKNOWN_PARK settle_delay {{ seconds: 9 }} at_most_once: true
  action {{ method: "{SERVICE}/Hold" added_rejected_codes: STATUS_CODE_DATA_LOSS idempotency_window {{ seconds: 99 }} }}
  compensation {{ method: "{SERVICE}/Free" by_key: true nothing_to_undo_codes {{ codes: STATUS_CODE_NOT_FOUND }} }} }}
"""
MALFORMED = sorted((Path(__file__).parent / "malformed").glob("*.txtpb"))
HEAD = f'name: "trip" input_type: "{PACKAGE}.Trip"'


def read_only(name: str, request: str) -> str:
    """A read-only step whose action has this request."""
    action = f'action {{ method: "{SERVICE}/Everything" request {{ {request} }} }}'
    return f'steps {{ name: "{name}" kind: STEP_KIND_READ_ONLY {action} }}'


@pytest.mark.parametrize("file", MALFORMED, ids=lambda file: file.stem)
def test_every_fault_is_reported_at_once(file: Path) -> None:
    """Promise: a malformed definition reports all its faults with their paths, and is not registered."""
    text = file.read_text("utf-8")
    with pytest.raises(InvalidDefinitionError) as caught:
        resolve(definition(text), announced=[ANNOUNCED])
    found = [f"#! {fault.path}: {fault.description}" for fault in caught.value.faults]
    if "AMENDS_REWRITE_SNAPSHOTS" in os.environ:
        written = [line for line in text.rstrip().splitlines() if not line.startswith("#! ")]
        file.write_text("\n".join([*written, *found, ""]), "utf-8")
        pytest.skip(f"{file.name} was written anew")
    assert found == [line for line in text.splitlines() if line.startswith("#! ")]


def test_sixty_five_steps_are_too_many() -> None:
    """Promise: the number of steps has a limit (64), and the fault says so."""
    steps = "".join(read_only(f"s{index}", "") for index in range(65))
    with pytest.raises(InvalidDefinitionError) as caught:
        resolve(definition(HEAD + steps), announced=[ANNOUNCED])
    assert [(fault.path, fault.description) for fault in caught.value.faults] == [
        ("steps", "65 are too many; a saga has 1 to 64 steps")
    ]


def test_fields_of_a_newer_release_are_refused() -> None:
    """Promise: nothing that a client asks for is dropped unseen."""
    written = definition(TRIP)
    written.steps[0].MergeFromString(b"\xfa\x3e\x03abc")
    written.steps[1].action.request.bindings[0].MergeFromString(b"\xfa\x3e\x03abc")
    with pytest.raises(InvalidDefinitionError) as caught:
        resolve(written, announced=[ANNOUNCED])
    reason = "this release doesn't know its field number 1007; leave it out, or use a newer coordinator"
    assert [(fault.path, fault.description) for fault in caught.value.faults] == [
        ("steps[0]", reason),
        ("steps[1].action.request.bindings[0]", reason),
    ]


def test_a_hostile_path_is_cut_short() -> None:
    """L2: one bad definition costs no more than its size."""
    path = "trip" + ".trip" * 10_000
    with pytest.raises(InvalidDefinitionError) as caught:
        resolve(
            definition(HEAD + read_only("a", f'bindings {{ target: "{path}" input: "guest" }}')), announced=[ANNOUNCED]
        )
    assert "has more than 32 names" in caught.value.faults[0].description
    assert len(caught.value.faults[0].description) < 300


def test_a_definition_full_of_faults_is_given_up() -> None:
    """L2: each fault costs time and nobody reads thousands: after 200 that is said, and no more is looked at."""
    misspelt = " ".join(f'bindings {{ target: "gest{index}" input: "guset" }}' for index in range(10_000))
    with pytest.raises(InvalidDefinitionError) as caught:
        resolve(definition(HEAD + read_only("a", misspelt)), announced=[ANNOUNCED])
    first, *rest = caught.value.faults
    assert (first.path, first.description) == ("", "it has more than 200 faults; correct these first")
    assert len(rest) == 200


@given(st.data())
def test_a_damaged_definition_is_faulty_or_sound(data: st.DataObject) -> None:
    """L2: whatever bytes a client sends as a definition, they end in faults or in a version, never in a traceback."""
    written = definition(data.draw(st.sampled_from([TRIP, RICH, HEAD + HELD]), "definition"))
    if data.draw(st.booleans(), "carries its descriptors"):
        written.descriptors.CopyFrom(ANNOUNCED)
    content = bytearray(written.SerializeToString())
    for _ in range(data.draw(st.integers(1, 3), "damages")):
        place = data.draw(st.integers(0, len(content) - 1), "place")
        content[place] = data.draw(st.integers(0, 255), "byte")
    damaged = pb.SagaDefinition()
    try:
        damaged.MergeFromString(bytes(content))
    except DecodeError:
        reject()
    try:
        resolved = resolve(damaged, announced=[ANNOUNCED])
    except InvalidDefinitionError as caught:
        faults = caught.faults
    else:
        faults = ()
        assert resolve(resolved) == resolved
        assert outlook_of(resolved).version == resolved.version
        assert compile_definition(stored(resolved)).version == resolved.version
    event("faulty" if faults else "sound")
