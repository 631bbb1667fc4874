"""A good definition, the files it needs, and sagas of it, for the tests of this folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from google.protobuf import text_format
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from amends.v1 import saga_definition_pb2 as pb
from amends_coordinator.core.definition import StoredDefinition
from amends_coordinator.core.ids import DefinitionVersion, Instant, SagaId, StepName
from amends_coordinator.core.saga import Intent, Saga
from amends_coordinator.core.states import Direction, IntentState
from amends_coordinator.definitions.compiled import CompiledDefinition, compile_definition
from amends_coordinator.definitions.registration import resolve
from definitions_test.v1 import lodging_pb2

if TYPE_CHECKING:
    from google.protobuf.descriptor import FileDescriptor

PACKAGE = "definitions_test.v1"
SERVICE = f"{PACKAGE}.LodgingService"

TRIP = f"""
name: "trip"
input_type: "{PACKAGE}.Trip"
output_type: "{PACKAGE}.Booked"
steps {{
  name: "book"
  action {{
    method: "{SERVICE}/Book"
    request {{
      bindings {{ target: "guest" input: "guest" }}
      bindings {{ target: "nights" input: "nights" }}
      bindings {{ target: "price" input: "price" }}
      bindings {{ target: "card" input: "card" }}
      bindings {{ target: "invoice" input: "invoice" }}
      bindings {{ target: "floor" input: "floor" }}
    }}
  }}
}}
steps {{
  name: "pay"
  kind: STEP_KIND_PIVOT
  action {{
    method: "{SERVICE}/Pay"
    request {{
      bindings {{ target: "key_uuid" saga: SAGA_FIELD_KEY_UUID }}
      bindings {{ target: "booking_id" step_response {{ step: "book" path: "booking_id" }} }}
    }}
  }}
}}
steps {{
  name: "tell"
  kind: STEP_KIND_RETRIABLE
  action {{ method: "{SERVICE}/Everything" }}
}}
output {{
  bindings {{ target: "booking_id" step_response {{ step: "book" path: "booking_id" }} }}
  bindings {{ target: "receipt_id" step_response {{ step: "pay" path: "receipt_id" }} }}
  bindings {{ target: "saga_id" saga: SAGA_FIELD_SAGA_ID }}
}}
"""


def files_of(file: FileDescriptor) -> FileDescriptorSet:
    """A generated module's file with all that it imports, as a participant announces it."""
    found: dict[str, FileDescriptor] = {}
    pending = [file]
    while pending:
        current = pending.pop()
        found[current.name] = current
        pending += current.dependencies
    return FileDescriptorSet(file=(FileDescriptorProto.FromString(each.serialized_pb) for each in found.values()))


ANNOUNCED = files_of(lodging_pb2.DESCRIPTOR)


def definition(text: str = TRIP) -> pb.SagaDefinition:
    """A definition written as text, without descriptors."""
    return text_format.Parse(text, pb.SagaDefinition())


def registered(written: pb.SagaDefinition) -> pb.SagaDefinition:
    """The definition as registration leaves it, with its types from what is announced."""
    return resolve(written, announced=[ANNOUNCED])


def stored(resolved: pb.SagaDefinition) -> StoredDefinition:
    """A resolved definition as the ledger keeps it."""
    return StoredDefinition(
        name=resolved.name,
        version=DefinitionVersion(resolved.version),
        content=resolved.SerializeToString(deterministic=True),
        created_time=Instant(0),
    )


def compiled(text: str = TRIP) -> CompiledDefinition:
    """A definition written as text, registered and compiled."""
    return compile_definition(stored(registered(definition(text))))


def bindings(call: pb.Call) -> dict[str, str]:
    """What each field of a request is bound to: "source step path"."""
    found: dict[str, str] = {}
    for each in call.request.bindings:
        place = each.step_response if each.HasField("step_response") else each.step_request
        found[each.target] = f"{each.WhichOneof('source')} {place.step} {place.path}".strip()
    return found


def intent(step: str, request: bytes, response: bytes | None) -> Intent:
    """A step's action that was called; with a response if it answered."""
    return Intent(
        step=StepName(step),
        direction=Direction.ACTION,
        method="",
        state=IntentState.SUCCEEDED if response is not None else IntentState.UNKNOWN,
        request=request,
        response=response,
        created_time=Instant(0),
        updated_time=Instant(0),
    )


def saga(of: CompiledDefinition, given: bytes, *intents: Intent) -> Saga:
    """A saga with an input and some steps behind it."""
    return Saga(
        id=SagaId("trip-1"),
        plan=of.plan,
        input=given,
        intents=intents,
        created_time=Instant(0),
        updated_time=Instant(0),
        progress_time=Instant(0),
        deadline_time=Instant(0),
    )
