"""One node's engine: starts sagas, waits for their ends, and keeps the sweeper and the drivers running."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from amends_coordinator.core.events import Started
from amends_coordinator.core.ids import Instant
from amends_coordinator.core.saga import Saga
from amends_coordinator.engine.binding import decide_and_bind
from amends_coordinator.engine.driver import Surroundings
from amends_coordinator.engine.drivers import Drivers
from amends_coordinator.engine.hashing import RECIPE, input_hash
from amends_coordinator.engine.lease import Lease
from amends_coordinator.engine.retention import Retention
from amends_coordinator.engine.shares import Shares
from amends_coordinator.engine.standing import Standing, participants_of
from amends_coordinator.engine.sweeper import Sweeper
from amends_coordinator.engine.tidings import tell
from amends_coordinator.engine.verbs import Verbs
from amends_coordinator.engine.watching import Watching
from amends_coordinator.ports.driving import StoppingError
from amends_coordinator.ports.ledger import NewSaga

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from amends_coordinator.core.ids import NodeId, SagaId
    from amends_coordinator.core.plan import Plan
    from amends_coordinator.definitions.catalog import Catalog
    from amends_coordinator.definitions.compiled import CompiledDefinition
    from amends_coordinator.engine.settings import EngineSettings
    from amends_coordinator.ports import ledger as ledgers
    from amends_coordinator.ports.clock import Clock, Ids
    from amends_coordinator.ports.directory import Directory
    from amends_coordinator.ports.driving import StartRequest
    from amends_coordinator.ports.participants import Participants
    from amends_coordinator.ports.telemetry import Telemetry


LARGEST_SHARE = 0.5
"""The part of the room in memory that the sagas of one participant may take."""


class Engine:
    """Implements `ports.driving.Driving`. `open` it, `run` it beside the server, `stop` it, then close the ledger."""

    def __init__(  # noqa: PLR0913 - what it is wired with, each given by name
        self,
        *,
        ledger: ledgers.Ledger,
        participants: Participants,
        directory: Directory,
        clock: Clock,
        ids: Ids,
        telemetry: Telemetry,
        catalog: Catalog,
        settings: EngineSettings,
        node: NodeId,
    ) -> None:
        self._around = Surroundings(
            ledger=ledger,
            participants=participants,
            directory=directory,
            clock=clock,
            telemetry=telemetry,
            settings=settings,
            node=node,
            lease=Lease(clock, ttl_s=settings.lease_ttl_s),
        )
        self._ids = ids
        self._catalog = catalog
        share = max(1, int(settings.max_running_sagas * LARGEST_SHARE))
        self._shares = Shares(share, room_made=self._share_has_room)
        self._drivers = Drivers(
            self._around,
            catalog,
            shares=self._shares,
            settled=self._saga_settled,
            written=self._saga_written,
            left=self._saga_left,
            fenced=self._end_fenced,
        )
        self._watching = Watching(self._around, self._drivers)
        self._sweeper = Sweeper(self._around, self._drivers, self._shares)
        self._retention = Retention(self._around, emptied=self._drivers.forget_ends)
        self.verbs = Verbs(self._around, ids, nudge=self.nudge)
        """Carries out what people ask of sagas."""
        self._stopping = False
        self._starting = 0  # on their way into the ledger, and into memory then

    @property
    def running_sagas(self) -> int:
        """How many sagas are held in memory."""
        return len(self._drivers)

    @property
    def last_pass_time(self) -> Instant | None:
        """When the sweeper finished a pass last; None before the first one."""
        return self._sweeper.last_pass_time

    async def open(self) -> None:
        """Take the ledger for this incarnation. Raises what `Ledger.open` raises."""
        began_s = self._around.clock.elapsed_s()
        await self._around.ledger.open(self._around.node, plans=self._catalog.plan)
        self._around.lease.renew(began_s)

    async def run(self) -> None:
        """Sweep, and empty old sagas beside it, until `stop`.

        Raises:
            NodeFencedError: this incarnation is shut out.
        """
        emptying = asyncio.create_task(self._retention.run(), name="retention")
        try:
            await self._sweeper.run()
        finally:
            emptying.cancel()
            await asyncio.gather(emptying, return_exceptions=True)

    async def stop(self, grace_s: float) -> None:
        """Take no new work, let calls under way end within the grace, then let go of every saga. Safe to repeat."""
        self._stopping = True
        self._sweeper.stop()
        self._watching.stop()
        await self._drivers.stop(grace_s)

    async def start(self, request: StartRequest) -> ledgers.Started:
        """See `ports.driving.Driving.start`."""
        if self._stopping:
            raise StoppingError("this coordinator is stopping and takes no new work")
        definition = self._catalog.compiled(request.definition)
        saga = self._new_saga(request, definition.plan)
        names = participants_of(saga, definition, self._around.directory)
        standing = Standing(self._shares)
        if self._sweeper.behind or len(self._drivers) + self._starting >= self._around.settings.max_running_sagas:
            waits_for = standing.waits_for(names)
            return await self._leave_waiting(saga, definition, waits_for, tell=self._sweeper.leave_waiting)
        standing.move(names)
        if standing.turned_away or standing.is_in_the_way:
            waits_for = standing.waits_for(names)
            standing.leave()
            return await self._leave_waiting(
                saga, definition, waits_for, tell=lambda: self._shares.leave_waiting(names)
            )
        self._starting += 1
        try:
            with self._drivers.starting(saga.id):
                return await self._start_here(saga, definition, standing)
        finally:
            self._starting -= 1

    async def _leave_waiting(
        self,
        saga: Saga,
        definition: CompiledDefinition,
        waits_for: str,
        *,
        tell: Callable[[], None],
    ) -> ledgers.Started:
        """Insert a saga that the sweeper takes up once there is room, in its turn."""
        started = await self._insert(saga, definition, owner=None, waits_for=waits_for)
        if started.started:
            tell()
            self._around.telemetry.saga_started(started.stored.saga)
        return started

    async def _start_here(self, saga: Saga, definition: CompiledDefinition, standing: Standing) -> ledgers.Started:
        """Insert a saga with its first decision, and drive it."""
        limit = self._around.settings.payload_limit_bytes
        is_driven = False
        try:
            decision = decide_and_bind(
                saga, Started(self._around.moment()), definition, self._around.directory, payload_limit_bytes=limit
            )
            started = await self._insert(
                decision.saga, definition, owner=self._around.node, waits_for=standing.waits_for(standing.names)
            )
            is_driven = started.started and not self._stopping  # else whoever opens the ledger next takes it up
        finally:
            if not is_driven:
                standing.leave()
        if is_driven:
            self._drivers.drive(started.stored, definition, None, decision.effects, standing=standing)
        if started.started:
            self._around.telemetry.saga_started(started.stored.saga)
            tell(self._around.telemetry, decision, before=saga.state)
        return started

    async def wait(self, saga_id: SagaId, *, timeout_s: float) -> ledgers.StoredSaga | None:
        """See `ports.driving.Driving.wait`."""
        return await self._watching.wait(saga_id, timeout_s=timeout_s)

    def watch(self, saga_id: SagaId, *, known_version: int) -> AsyncGenerator[ledgers.StoredSaga]:
        """See `ports.driving.Driving.watch`."""
        return self._watching.watch(saga_id, known_version=known_version)

    def _new_saga(self, request: StartRequest, plan: Plan) -> Saga:
        now = self._around.clock.now()
        return Saga(
            id=request.saga_id or self._ids.saga_id(),
            plan=plan,
            input=request.input,
            labels=request.labels,
            created_time=now,
            updated_time=now,
            progress_time=now,
            due_time=now,
            deadline_time=Instant(now + plan.timeout_us),
            traceparent=request.traceparent,
            tracestate=request.tracestate,
        )

    async def _insert(
        self,
        saga: Saga,
        definition: CompiledDefinition,
        *,
        owner: NodeId | None,
        waits_for: str,
    ) -> ledgers.Started:
        new = NewSaga(
            saga=saga,
            start_token=self._ids.token(),
            owner=owner,
            input_hash=input_hash(saga.input),
            input_hash_recipe=RECIPE,
            participants=tuple(sorted(definition.chosen_participants(saga.input))),
            waits_for=waits_for,
        )
        began_s = self._around.clock.elapsed_s()
        started = await self._around.ledger.start(new)
        self._around.lease.renew(began_s)
        return started

    def nudge(self, saga_id: SagaId) -> None:
        """Somebody has written this saga past its driver: have it looked at now, in memory or by the sweeper."""
        self._drivers.nudge(saga_id)
        self._sweeper.look_now()

    def _share_has_room(self) -> None:
        """Sagas that wait in the ledger for one participant can be claimed."""
        self._sweeper.look_soon()

    def _saga_settled(self, stored: ledgers.StoredSaga) -> None:
        self._watching.settled(stored)

    def _saga_written(self, saga_id: SagaId) -> None:
        self._watching.written(saga_id)

    def _saga_left(self, saga_id: SagaId, stored: ledgers.StoredSaga | None) -> None:
        self._watching.left(saga_id, stored)
        self._sweeper.room_made()

    def _end_fenced(self, error: ledgers.NodeFencedError) -> None:
        self._sweeper.fenced(error)
