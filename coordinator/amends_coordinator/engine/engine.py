"""One node's engine: starts sagas, waits for their ends, and keeps the sweeper and the drivers running."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from amends_coordinator.core.ids import Instant
from amends_coordinator.engine.driver import Surroundings
from amends_coordinator.engine.drivers import Drivers
from amends_coordinator.engine.lease import Lease
from amends_coordinator.engine.retention import Retention
from amends_coordinator.engine.shares import Shares
from amends_coordinator.engine.starting import Starting
from amends_coordinator.engine.sweeper import Sweeper
from amends_coordinator.engine.verbs import Verbs
from amends_coordinator.engine.watching import Watching

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from amends_coordinator.core.ids import NodeId, SagaId
    from amends_coordinator.definitions.catalog import Catalog
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
        self._starts = Starting(
            self._around, ids=ids, catalog=catalog, drivers=self._drivers, shares=self._shares, sweeper=self._sweeper
        )
        self._retention = Retention(self._around, emptied=self._drivers.forget_ends)
        self.verbs = Verbs(self._around, ids, nudge=self.nudge)
        """Carries out what people ask of sagas."""

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
        self._starts.stop()
        self._sweeper.stop()
        self._watching.stop()
        await self._drivers.stop(grace_s)

    async def start(self, request: StartRequest) -> ledgers.Started:
        """See `ports.driving.Driving.start`."""
        return await self._starts.start(request)

    async def wait(self, saga_id: SagaId, *, timeout_s: float) -> ledgers.StoredSaga | None:
        """See `ports.driving.Driving.wait`."""
        return await self._watching.wait(saga_id, timeout_s=timeout_s)

    def watch(self, saga_id: SagaId, *, known_version: int) -> AsyncGenerator[ledgers.StoredSaga]:
        """See `ports.driving.Driving.watch`."""
        return self._watching.watch(saga_id, known_version=known_version)

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
