"""A payload that readers can't turn into JSON is shown as bytes, and everything beside it as ever."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from google.protobuf.wrappers_pb2 import BytesValue

from amends_coordinator.core.definition import StoredDefinition
from amends_coordinator.core.ids import DefinitionVersion
from amends_coordinator.definitions.compiled import CompiledDefinition, compile_definition
from amends_coordinator.definitions.registration import resolve
from amends_coordinator.grpc_api.mapping import saga_summary
from amends_coordinator.grpc_api.unreadable_payloads import show_as_bytes
from tests.grpcurl.odd_types import AS_BYTES, NOWHERE, SHOWN, TEXT_THAT_IS_NONE, odd, odd_definition
from tests.unit.grpc_api.samples import NOW, compiled_errand, failed_saga

if TYPE_CHECKING:
    from amends.v1.saga_pb2 import Saga


@pytest.fixture(scope="module")
def definition() -> CompiledDefinition:
    """The definition whose input is of the oddest type."""
    resolved = resolve(odd_definition())
    stored = StoredDefinition(
        name=resolved.name,
        version=DefinitionVersion(resolved.version),
        content=resolved.SerializeToString(deterministic=True),
        created_time=NOW,
    )
    return compile_definition(stored)


def shown_with(payload: bytes, definition: CompiledDefinition) -> Saga:
    """A saga with this input, as people see it."""
    stored = failed_saga(compiled_errand())
    saga = replace(stored.saga, input=payload, output=None, plan=definition.plan, intents=(), dead_letters=())
    return show_as_bytes(saga_summary(replace(stored, saga=saga), definition), definition)


@pytest.mark.parametrize("name", SHOWN)
def test_what_json_has_words_for_is_shown(name: str, definition: CompiledDefinition) -> None:
    """L2: recursion, groups, extensions, an `Any` in an `Any`: none of it is hidden from people."""
    assert shown_with(odd(SHOWN[name]), definition).input.type_url == "type.googleapis.com/odd.v1.Odd"


@pytest.mark.parametrize("name", AS_BYTES)
def test_what_json_has_no_words_for_is_shown_as_bytes(name: str, definition: CompiledDefinition) -> None:
    """L2: a payload that spoils the whole answer for its reader is bytes, and says of which type they should be."""
    payload = odd(AS_BYTES[name])
    shown, raw = shown_with(payload, definition).input, BytesValue()
    assert shown.type_url == "type.googleapis.com/odd.v1.Odd/google.protobuf.BytesValue"
    assert shown.Unpack(raw)
    assert raw.value == payload


@pytest.mark.parametrize("payload", [b"\xff", TEXT_THAT_IS_NONE, b"\x42\x02\x22\x00"])
def test_what_is_no_message_is_shown_as_bytes(payload: bytes, definition: CompiledDefinition) -> None:
    """L2: broken bytes, text that is none, a required field that is missing."""
    assert shown_with(payload, definition).input.TypeName() == "google.protobuf.BytesValue"


def test_an_inner_type_that_nobody_knows_hides_nothing(definition: CompiledDefinition) -> None:
    """grpcurl shows the bytes of that one field and everything else as it is."""
    assert shown_with(odd(NOWHERE), definition).input.TypeName() == "odd.v1.Odd"
