"""An engine on a real ledger, whose participants and telemetry are implementations of their ports inside the test."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, TypeAlias

from amends_coordinator.core.answer import Answer
from amends_coordinator.core.definition import StoredDefinition
from amends_coordinator.core.ids import DefinitionVersion, Instant, NodeId, SagaId
from amends_coordinator.core.states import Outcome, SagaState
from amends_coordinator.definitions.catalog import Catalog
from amends_coordinator.definitions.registration import resolve
from amends_coordinator.engine.engine import Engine
from amends_coordinator.engine.settings import EngineSettings
from amends_coordinator.ports.driving import StartRequest
from amends_coordinator.ports.ledger import NodeFencedError
from amends_coordinator.system import SystemClock, SystemIds
from scenario.v1.scenario_pb2 import DoResponse, UndoResponse
from tests.scenarios.sagas import ScenarioSaga, steps

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

    from amends_coordinator.core.ids import IdempotencyKey, StepName
    from amends_coordinator.core.saga import Attempt, DeadLetter, Intent, Saga
    from amends_coordinator.core.states import Direction
    from amends_coordinator.ports.ledger import InstanceRow, Ledger, Started, StoredSaga
    from amends_coordinator.ports.participants import CallRequest

    Answering: TypeAlias = Callable[[CallRequest], Awaitable[Answer]]

NODE = NodeId("node-1")
WAIT_S = 30.0
GOOD = {
    "Do": DoResponse(effect_id="e-1", name="a").SerializeToString(),
    "Undo": UndoResponse().SerializeToString(),
}
REFUSED = Answer(outcome=Outcome.REJECTED, status_code="FAILED_PRECONDITION", message="no")
LOST = Answer(outcome=Outcome.UNKNOWN, status_code="UNAVAILABLE", message="no answer")
NOT_SENT = Answer(outcome=Outcome.NOT_SENT, message="nobody serves it")


async def succeed(request: CallRequest) -> Answer:
    """Everything goes well, after the loop has had its turn."""
    await asyncio.sleep(0)
    response = GOOD[request.method.rpartition("/")[2]]
    return Answer(outcome=Outcome.SUCCEEDED, status_code="OK", response=response)


@dataclass(slots=True)
class Participants:
    """The port: remembers every call, refuses to be called twice at once with one key, and answers as told."""

    answer: Answering = succeed
    calls: list[CallRequest] = field(default_factory=list["CallRequest"])
    _going_on: set[str] = field(default_factory=set[str])

    async def call(self, request: CallRequest) -> Answer:
        """See the port."""
        assert request.key not in self._going_on, f"two calls at once with {request.key}"
        self.calls.append(request)
        self._going_on.add(request.key)
        try:
            return await self.answer(request)
        finally:
            self._going_on.discard(request.key)

    def withdraw(self, key: IdempotencyKey) -> None:
        """See the port; nothing ever waits for a slot here."""

    def sides(self, saga_id: str) -> list[str]:
        """The calls of one saga, as "step/direction#attempt"."""
        found = (call for call in self.calls if call.saga_id == saga_id)
        return [f"{call.step}/{call.direction.value.lower()}#{call.attempt}" for call in found]


@dataclass(slots=True)
class Directory:
    """The port: the participants that serve each service, "steps" unless a test says so; `away` are those that would
    if they were there. Of others nothing is known.
    """

    names: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    away: dict[str, list[str]] = field(default_factory=dict[str, list[str]])

    def serving(self, service: str) -> Sequence[str]:
        """See the port."""
        return self.names.get(service, ["steps"])

    def may_serve(self, participant: str, service: str) -> bool:
        """See the port."""
        known = {name for found in (self.names, self.away) for names in found.values() for name in names}
        return participant not in known or participant in (*self.serving(service), *self.away.get(service, ()))

    def instances(self, *, service: str, participant: str) -> Sequence[InstanceRow]:
        """See the port; nobody is really called."""
        return []


@dataclass(slots=True)
class Telemetry:
    """The port: remembers failures; `plant` is called with the name of each method, and may raise."""

    plant: Callable[[str], None] = lambda _: None
    failures: list[BaseException] = field(default_factory=list[BaseException])
    outages: int = 0
    announced: list[str] = field(default_factory=list[str])
    left: list[str] = field(default_factory=list[str])
    purged: list[int] = field(default_factory=list[int])
    unreadable: list[str] = field(default_factory=list[str])
    started: list[str] = field(default_factory=list[str])
    moved: list[SagaState] = field(default_factory=list[SagaState])

    def saga_started(self, saga: Saga) -> None:
        """See the port."""
        self.started.append(saga.id)
        self.plant("saga_started")

    def saga_moved(self, saga: Saga) -> None:
        """See the port."""
        self.moved.append(saga.state)
        self.plant("saga_moved")

    def intent_moved(self, saga: Saga, intent: Intent) -> None:
        """See the port."""
        self.plant("intent_moved")

    def attempt_ended(self, saga: Saga, intent: Intent, attempt: Attempt, ended_time: Instant) -> None:
        """See the port."""
        self.plant("attempt_ended")

    def dead_letter_opened(self, saga: Saga, letter: DeadLetter) -> None:
        """See the port."""
        self.plant("dead_letter_opened")

    def call_not_sent(self, saga: Saga, step: StepName, direction: Direction, answer: Answer) -> None:
        """See the port."""
        self.plant("call_not_sent")

    def late_answer(self, saga: Saga) -> None:
        """See the port."""
        self.plant("late_answer")

    def driver_failed(self, saga_id: str, error: BaseException) -> None:
        """See the port."""
        self.failures.append(error)

    def request_refused(self, method: str, reason: str) -> None:
        """See the port."""
        self.plant("request_refused")

    def saga_unreadable(self, saga_id: str, error: BaseException) -> None:
        """See the port."""
        self.unreadable.append(saga_id)

    def participant_unreadable(self, participant: str, error: BaseException) -> None:
        """See the port."""
        self.unreadable.append(participant)

    def ledger_unavailable(self, error: BaseException) -> None:
        """See the port."""
        self.outages += 1

    def sagas_purged(self, count: int) -> None:
        """See the port."""
        self.purged.append(count)

    def retention_failed(self, error: BaseException) -> None:
        """See the port."""
        self.failures.append(error)

    def participant_announced(self, instance: InstanceRow, services: Sequence[str]) -> None:
        """See the port."""
        self.announced.append(instance.instance_id)

    def participant_left(self, participant: str, instance_id: str) -> None:
        """See the port."""
        self.left.append(instance_id)


@cache
def definition(*names: str) -> StoredDefinition:
    """A stored definition of compensatable steps."""
    return stored(steps(*names))


def stored(saga: ScenarioSaga) -> StoredDefinition:
    """A definition as the ledger has it."""
    resolved = resolve(saga.definition())
    content = resolved.SerializeToString(deterministic=True)
    version = DefinitionVersion(resolved.version)
    return StoredDefinition(name=resolved.name, version=version, content=content, created_time=Instant(1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rig:
    """The engine with everything around it."""

    engine: Engine
    ledger: Ledger
    participants: Participants
    telemetry: Telemetry
    running: asyncio.Task[None]

    @property
    def running_sagas(self) -> int:
        """How many sagas are held in memory."""
        return len(self.engine._drivers)  # pyright: ignore[reportPrivateUsage]  # the product asks nobody for it

    async def start(self, saga_id: str, *names: str, payload: bytes = b"") -> Started:
        """Start a saga of these steps ("a" and "b" unless given)."""
        kept = await self.ledger.put_definition(definition(*(names or ("a", "b"))))
        return await self.engine.start(StartRequest(saga_id=SagaId(saga_id), definition=kept, input=payload))

    async def end(self, saga_id: str) -> StoredSaga:
        """The saga once it has ended; fails if it hasn't within the bound."""
        found = await self.engine.wait(SagaId(saga_id), timeout_s=WAIT_S)
        assert found is not None
        assert found.saga.state not in (SagaState.RUNNING, SagaState.COMPENSATING), f"{saga_id} did not end"
        return found


@asynccontextmanager
async def rig(
    ledger: Ledger,
    *,
    answer: Answering = succeed,
    plant: Callable[[str], None] = lambda _: None,
    node: NodeId = NODE,
    **settings: float,
) -> AsyncGenerator[Rig]:
    """An engine that runs; at the end it is stopped, the ledger closed, and no task is left behind."""
    before = asyncio.all_tasks()
    quick: dict[str, float] = {"sweep_interval_s": 0.02, "heartbeat_interval_s": 0.1, **settings}
    participants, telemetry = Participants(answer), Telemetry(plant)
    engine = Engine(
        ledger=ledger,
        participants=participants,
        directory=Directory(),
        clock=SystemClock(),
        ids=SystemIds(),
        telemetry=telemetry,
        catalog=Catalog(),
        settings=EngineSettings(**quick),  # type: ignore[arg-type]  # counts among them are whole numbers
        node=node,
    )
    await engine.open()
    running = asyncio.create_task(engine.run())
    try:
        yield Rig(engine=engine, ledger=ledger, participants=participants, telemetry=telemetry, running=running)
    finally:
        await engine.stop(0.05)
        await asyncio.gather(running, return_exceptions=True)
        with suppress(NodeFencedError):
            await ledger.close()
    left = asyncio.all_tasks() - before - {running}
    assert not left, f"left behind: {left}"
