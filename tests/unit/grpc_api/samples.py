"""A definition of one step with its files, a clock that tests set, and a saga with rows of every kind."""

from __future__ import annotations

from google.protobuf import descriptor_pb2, text_format
from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from amends.v1 import saga_definition_pb2
from amends_coordinator.core.definition import StoredDefinition
from amends_coordinator.core.ids import DeadLetterId, DefinitionVersion, Instant, NodeId, SagaId, StepName
from amends_coordinator.core.saga import Attempt, DeadLetter, Failure, Intent, Saga
from amends_coordinator.core.states import DeadLetterReason, Direction, IntentState, Outcome, SagaState
from amends_coordinator.definitions.compiled import CompiledDefinition, compile_definition
from amends_coordinator.definitions.registration import resolve
from amends_coordinator.ports.ledger import StoredSaga
from scenario.v1 import scenario_pb2

SERVICE = "scenario.v1.StepService"
ERRAND = f"""
name: "errand"
input_type: "scenario.v1.DoRequest"
output_type: "scenario.v1.FindResponse"
steps {{
  name: "do"
  action {{
    method: "{SERVICE}/Do"
    request {{
      bindings {{ target: "name" input: "name" }}
      bindings {{ target: "amount" input: "amount" }}
    }}
  }}
}}
output {{ bindings {{ target: "name" input: "name" }} }}
"""
NOW = Instant(1_700_000_000_123_456)


class ManualClock:
    """A clock that stands still until a test moves it."""

    def __init__(self, now: Instant = NOW) -> None:
        self.time = now

    def now(self) -> Instant:
        """The time that the test has set."""
        return self.time

    def elapsed_s(self) -> float:
        """See the port."""
        return self.now() / 1e6

    def fraction(self) -> float:
        """No jitter."""
        return 0.0

    def advance(self, span_us: int) -> None:
        """Let time pass."""
        self.time = Instant(self.time + span_us)


def files_of(*roots: FileDescriptor) -> FileDescriptorSet:
    """These files and all that they import."""
    found: dict[str, FileDescriptor] = {}
    pending = list(roots)
    while pending:
        file = pending.pop()
        if file.name not in found:
            found[file.name] = file
            pending += file.dependencies
    protos = (FileDescriptorProto.FromString(found[name].serialized_pb) for name in sorted(found))
    return FileDescriptorSet(file=protos)


def scenario_files() -> FileDescriptorSet:
    """The files of the service that the definition's step calls."""
    return files_of(scenario_pb2.DESCRIPTOR)


def errand(
    *, name: str = "errand", with_files: bool = True, participant_input: str = ""
) -> saga_definition_pb2.SagaDefinition:
    """The definition as a client sends it."""
    definition = text_format.Parse(ERRAND, saga_definition_pb2.SagaDefinition())
    definition.name = name
    definition.steps[0].participant_input = participant_input
    if with_files:
        definition.descriptors.CopyFrom(scenario_files())
    return definition


def stored_errand(*, name: str = "errand", created_time: Instant = NOW) -> StoredDefinition:
    """The definition as the ledger has it."""
    resolved = resolve(errand(name=name))
    return StoredDefinition(
        name=resolved.name,
        version=DefinitionVersion(resolved.version),
        content=resolved.SerializeToString(deterministic=True),
        created_time=created_time,
    )


def compiled_errand() -> CompiledDefinition:
    """The definition ready to run."""
    return compile_definition(stored_errand())


def other_file() -> FileDescriptorSet:
    """A file that has the scenario's name and other content."""
    files = scenario_files()
    for file in files.file:
        if file.name == scenario_pb2.DESCRIPTOR.name:
            file.message_type.append(descriptor_pb2.DescriptorProto(name="Surprise"))
    return files


def failed_saga(definition: CompiledDefinition) -> StoredSaga:
    """A saga that rolled back as far as it could: its undo is parked for a person."""
    node = NodeId("host-1")
    done = Attempt(
        number=1, node=node, start_time=NOW, end_time=Instant(NOW + 5), status_code="OK", outcome=Outcome.SUCCEEDED
    )
    action = Intent(
        step=StepName("do"),
        direction=Direction.ACTION,
        method=f"{SERVICE}/Do",
        participant="steps",
        state=IntentState.SUCCEEDED,
        attempt=1,
        attempts=(done,),
        request=scenario_pb2.DoRequest(name="a", amount=7).SerializeToString(),
        response=scenario_pb2.DoResponse(effect_id="e-1").SerializeToString(),
        created_time=NOW,
        updated_time=Instant(NOW + 5),
    )
    undo = Intent(
        step=StepName("do"),
        direction=Direction.COMPENSATION,
        method=f"{SERVICE}/Undo",
        state=IntentState.PARKED,
        attempt=30,
        attempts=(Attempt(number=30, node=node, start_time=NOW),),
        attempts_left_out={"UNAVAILABLE": 5},
        last_error="no",
        request=b"",
        created_time=NOW,
        updated_time=NOW,
    )
    saga = Saga(
        id=SagaId("s-1"),
        plan=definition.plan,
        state=SagaState.COMPENSATION_FAILED,
        input=scenario_pb2.DoRequest(name="a", amount=7).SerializeToString(),
        labels={"shop": "one"},
        failure=Failure(step=StepName("do"), reason="NO", status_code="ABORTED", message="sorry", time=NOW),
        intents=(action, undo),
        dead_letters=(
            DeadLetter(
                id=DeadLetterId("s-1/do/compensation/1"),
                step=StepName("do"),
                direction=Direction.COMPENSATION,
                reason=DeadLetterReason.REFUSED,
                last_error="no",
                opened_time=NOW,
            ),
        ),
        compensations_owed=1,
        created_time=NOW,
        updated_time=Instant(NOW + 9),
        progress_time=Instant(NOW + 7),
        deadline_time=Instant(NOW + 60_000_000),
        traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    )
    return StoredSaga(saga=saga, version=3, owner=node)
