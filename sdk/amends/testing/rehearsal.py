"""Rehearses sagas: a real coordinator on virtual time calls the author's own servicers, without a network.

    async def rehearse() -> None:
        async with Rehearsal({"shop": [Shop(sessions)]}) as rehearsal:
            end = await rehearsal.run(order, PlaceOrder(sku="x"), saga_id="order-1")
            assert isinstance(end, Committed), rehearsal.timeline()

    run(rehearse)

Engine, definitions and public API are the coordinator's own, on a ledger in memory; handlers run behind the SDK's own
wrapper, with the metadata that a coordinator sends, and what they answer is read as an answer that came over a network.
What goes wrong is a `Fault`'s to say. The same seed makes the same run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import Message

from amends.testing.around import Around
from amends.testing.in_process import InProcessServer
from amends.testing.journal import (
    CoordinatorFailed,
    CoordinatorKilled,
    CoordinatorStarted,
    Entry,
    Happening,
    Journal,
    Noted,
    ParticipantRestarted,
)
from amends.testing.participants import Participant
from amends.testing.rehearsed_client import RehearsedClient
from amends.testing.seam import NoFault
from amends.testing.standing import CoordinatorFailedError, StandsStillError, stands_still
from amends.testing.stuck import WrongLoopError
from amends.testing.virtual_time import VirtualLoop
from amends.v1 import operator_service_pb2, saga_pb2
from amends.v1.operator_service_pb2_grpc import OperatorServiceStub
from amends_coordinator.bootstrap import Instant, MemoryStore, RehearsedClock, RehearsedCoordinator, RehearsedIds

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from types import TracebackType
    from typing import Self

    from amends.client import SagaClient
    from amends.results import Committed, Compensated, CompensationFailed
    from amends.saga import Saga
    from amends.testing.seam import Fault

In = TypeVar("In", bound=Message)
Out = TypeVar("Out", bound=Message | None)
T = TypeVar("T")

BEGIN = datetime(2100, 1, 1, tzinfo=UTC)
"""The virtual time at which every run begins: one that no machine's clock has reached."""

LEASE = timedelta(seconds=15)
"""After so long another incarnation takes up the sagas of one that was killed."""

LEDGER_NAME = "rehearsal"

SETTINGS: Mapping[str, float] = {
    "lease_ttl_s": LEASE.total_seconds(),
    "heartbeat_interval_s": 5.0,
    "sweep_interval_s": 5.0,
}
"""What is set otherwise than a coordinator's defaults, so that time in which nothing happens costs little. A saga that
waits for longer than a few seconds goes on by up to a sweep later.
"""

_MICROSECOND = timedelta(microseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Orphans(StrEnum):
    """What becomes of the handlers that a killed coordinator has called."""

    CANCELLED = "cancelled"
    """Their connection breaks, and gRPC cancels them."""
    RUN_ON = "run on"
    """They don't hear of it, and run to their end."""


@dataclass(frozen=True, slots=True)
class _Incarnation:
    node: str
    coordinator: RehearsedCoordinator
    around: Around


class Rehearsal:
    """One coordinator after the other on one ledger, with its participants. To be entered inside `run`.

    Args:
        participants: the author's servicers, by the name of the participant that serves them.
        restarted: makes them anew when a participant's process died, as its start does; what the old ones had in memory
            is gone then. None: the same ones go on.
        fault: what goes wrong; None: nothing.
        interceptors: the author's own gRPC interceptors, by the name of the participant before which they stand.
        settings: of the coordinator's engine, over its defaults, for example `{"abort_grace_s": 1}`.

    Raises:
        InvalidParticipantError: a servicer can't be served.
        CoordinatorFailedError: (when it is left) something went wrong that is no part of the rehearsal.
    """

    def __init__(
        self,
        participants: Mapping[str, Sequence[object]],
        *,
        restarted: Callable[[], Mapping[str, Sequence[object]]] | None = None,
        fault: Fault | None = None,
        interceptors: Mapping[str, Sequence[grpc.aio.ServerInterceptor]] | None = None,
        settings: Mapping[str, float] | None = None,
    ) -> None:
        loop = asyncio.get_running_loop()
        if not isinstance(loop, VirtualLoop):
            raise WrongLoopError("a Rehearsal needs virtual time: enter it in what amends.testing.run() runs")
        self._loop = loop
        self._fault: Fault = NoFault() if fault is None else fault
        self._settings = {**SETTINGS, **(settings or {})}
        before = interceptors or {}
        self._participants = {
            name: Participant(name, servicers, begin=loop.turn, interceptors=before.get(name, ()))
            for name, servicers in participants.items()
        }
        self._restarted = restarted
        self._store = MemoryStore()
        self._journal = Journal()
        begin = Instant((BEGIN - _EPOCH) // _MICROSECOND)
        self._clock = RehearsedClock(loop.time, begin=begin, seed=f"{loop.seed} chance")
        self._ids = RehearsedIds(f"{loop.seed} ids")
        self._made = 0
        self._incarnation: _Incarnation | None = None
        self._replacing: asyncio.Task[None] | None = None
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._changed = asyncio.Event()
        self._front = InProcessServer("coordinator", self._serve, begin=_at_once)
        self.channel: grpc.aio.Channel = self._front.channel()
        """A channel to the coordinator, for stubs of its public services."""
        self.client: SagaClient = RehearsedClient(self.channel, new_saga_id=self._ids.saga_id)
        """A client of the coordinator. While there is none, because it was killed, it asks until there is."""

    async def __aenter__(self) -> Self:
        await self.client.__aenter__()
        await self._start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._close()
        failures = [str(entry.what) for entry in self.journal if isinstance(entry.what, CoordinatorFailed)]
        if failures and error is None:
            raise CoordinatorFailedError("\n".join((*failures, self.timeline())))

    async def _close(self) -> None:
        await self.client.close()
        if self._replacing is not None:
            self._replacing.cancel()
            await asyncio.gather(self._replacing, return_exceptions=True)
        if self._incarnation is not None:
            await self._incarnation.coordinator.stop()
        self._front.cancel_all()
        for participant in self._participants.values():
            participant.close()
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # ---- sagas ---------------------------------------------------------------------------------------------------

    async def run(
        self,
        saga: Saga[In, Out],
        input: In,  # noqa: A002 - the word that definitions use
        *,
        saga_id: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> Committed[Out] | Compensated | CompensationFailed:
        """Start a saga, and answer its end once nothing of it is left to do without a person.

        Raises:
            StandsStillError: it hasn't ended, and waits for a person.
            What `SagaClient.start` raises.
        """
        handle = await self.client.start(saga, input, saga_id=saga_id, labels=labels)
        return handle.end(await self.settled(handle.saga_id))

    async def settled(self, saga_id: str) -> saga_pb2.Saga:
        """The saga with its rows, once nothing of it is left to do without a person.

        Raises:
            StandsStillError: it is still `RUNNING`, and waits for a person.
            SagaNotFoundError: no saga has this id.
            CoordinatorFailedError: there is no coordinator any more.
        """
        while not stands_still(self._store, saga_id):
            self._check_coordinator()
            self._changed.clear()
            await self._changed.wait()
        stands = await self.client.get(saga_id)
        if stands.state == saga_pb2.Saga.STATE_RUNNING:
            raise StandsStillError(stands, self.timeline())
        return stands

    async def retry(self, dead_letter_id: str, *, reason: str = "rehearsed", forced: bool = False) -> saga_pb2.Saga:
        """Have an operator retry a dead letter; the saga as it stands then. Raises `grpc.aio.AioRpcError`."""
        request = operator_service_pb2.RetryDeadLetterRequest(
            dead_letter_id=dead_letter_id, reason=reason, forced=forced, claimed_actor="operator"
        )
        return (await OperatorServiceStub(self.channel).RetryDeadLetter(request)).saga

    async def resolve(
        self,
        dead_letter_id: str,
        resolution: saga_pb2.Resolution.ValueType,
        *,
        response: Message | None = None,
        reason: str = "rehearsed",
    ) -> saga_pb2.Saga:
        """Have an operator resolve a dead letter; the saga as it stands then. Raises `grpc.aio.AioRpcError`."""
        request = operator_service_pb2.ResolveDeadLetterRequest(
            dead_letter_id=dead_letter_id, resolution=resolution, reason=reason, claimed_actor="operator"
        )
        if response is not None:
            request.response.Pack(response, deterministic=True)
        return (await OperatorServiceStub(self.channel).ResolveDeadLetter(request)).saga

    # ---- what faults do ------------------------------------------------------------------------------------------

    def kill(self, *, restart_after: timedelta = LEASE, orphans: Orphans = Orphans.CANCELLED) -> None:
        """Kill the coordinator as SIGKILL does: from this moment on it writes and hears nothing. Another incarnation
        comes when its lease is over, and takes its sagas up. Nothing happens while there is none.

        Args:
            restart_after: when the other one comes.
            orphans: what becomes of the handlers that it has called.
        """
        killed, self._incarnation = self._incarnation, None
        if killed is None:
            return
        killed.coordinator.kill()
        killed.around.is_dead = True
        killed.around.leaves_calls_behind = orphans is Orphans.RUN_ON
        self.note(CoordinatorKilled(killed.node))
        self._front.cancel_all()
        self._replacing = asyncio.create_task(self._replace(killed, restart_after), name="replace coordinator")
        self._replacing.add_done_callback(self._replaced)

    async def restart(self, *participants: str) -> None:
        """End the processes of participants with all that they are doing; once they have ended others are there, see
        `restarted`.
        """
        for name in participants:
            await self._participants[name].die()
        begun = None if self._restarted is None else self._restarted()
        for name in participants:
            self._participants[name].begin_anew(None if begun is None else begun[name])
            self.note(ParticipantRestarted(name))

    @property
    def participants(self) -> Sequence[str]:
        """Their names."""
        return tuple(self._participants)

    def later(self, work: Awaitable[T]) -> asyncio.Task[T]:
        """Do something beside everything else, also when the coordinator is killed meanwhile; ends with the
        rehearsal.
        """
        task = asyncio.create_task(_awaited(work), name="later")
        self._tasks[task] = None
        task.add_done_callback(self._forget)
        return task

    def note(self, what: Happening | str) -> None:
        """Write something into the journal."""
        happening = Noted(what) if isinstance(what, str) else what
        self._journal.entries.append(Entry(self._loop.time(), happening))

    @property
    def journal(self) -> Sequence[Entry]:
        """Everything that has happened so far."""
        return self._journal.entries

    @property
    def now(self) -> datetime:
        """The virtual time."""
        return BEGIN + timedelta(seconds=self._loop.time())

    def timeline(self) -> str:
        """What has happened so far, for people: a line for each, with the virtual seconds since the run began."""
        return self._journal.timeline()

    # ---- around the coordinator ----------------------------------------------------------------------------------

    async def _start(self) -> None:
        self._made += 1
        node = f"node-{self._made}"
        around = Around(
            self._fault, note=self.note, later=self.later, written=self._changed.set, died=self._participant_died
        )
        coordinator = RehearsedCoordinator(
            node=node,
            store=self._store,
            clock=self._clock,
            ids=self._ids,
            participants=[participant.described() for participant in self._participants.values()],
            surrounding=around,
            ledger_name=LEDGER_NAME,
            settings=self._settings,
        )
        await coordinator.start()
        self.note(CoordinatorStarted(node))
        self._incarnation = _Incarnation(node, coordinator, around)

    async def _replace(self, killed: _Incarnation, restart_after: timedelta) -> None:
        await killed.coordinator.bury()
        await asyncio.sleep(restart_after.total_seconds())
        await self._start()

    def _replaced(self, replacing: asyncio.Task[None]) -> None:
        error = None if replacing.cancelled() else replacing.exception()
        if error is not None:
            self.note(CoordinatorFailed("", repr(error)))
            self._changed.set()

    def _check_coordinator(self) -> None:
        """Raises if the coordinator failed as a whole: nothing will ever happen any more."""
        gone = next((each.what for each in self.journal if isinstance(each.what, CoordinatorFailed)), None)
        if gone is not None and not gone.saga_id:
            raise CoordinatorFailedError(f"{gone}\n{self.timeline()}")

    def _serve(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any] | None:
        """The handler of one call of the coordinator's public API."""
        if self._incarnation is None:
            raise grpc.aio.AioRpcError(
                grpc.StatusCode.UNAVAILABLE,
                grpc.aio.Metadata(),
                grpc.aio.Metadata(),
                details="failed to connect: the coordinator was killed",
            )
        found = (handler.service(details) for handler in self._incarnation.coordinator.handlers)
        return next((handler for handler in found if handler is not None), None)

    def _participant_died(self, name: str) -> None:
        """Its process ends with everything that it was doing, and then another one is there."""
        self._loop.call_soon_threadsafe(lambda: self.later(self.restart(name)))

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.note(f"what was done later raised {error!r}")


async def _awaited(work: Awaitable[T]) -> T:
    return await work


async def _at_once() -> None:
    """The coordinator's own services don't wait for a turn."""
