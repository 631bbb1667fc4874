"""A real, tiny implementation of the driving port: it stores what is started, and sagas move when the test says so."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from amends_coordinator.core.ids import Instant, SagaId
from amends_coordinator.core.saga import Failure, Saga
from amends_coordinator.core.states import SagaState
from amends_coordinator.ports.driving import StoppingError, UnknownSagaError
from amends_coordinator.ports.ledger import NewSaga, Write

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from amends_coordinator.core.ids import NodeId
    from amends_coordinator.definitions.catalog import Catalog
    from amends_coordinator.ports.clock import Clock, Ids
    from amends_coordinator.ports.driving import StartRequest
    from amends_coordinator.ports.ledger import Ledger, Started, StoredSaga


class TinyDriving:
    """Starts sagas that stay as they are until `end`. `open_door` cleared holds starts back before they are stored."""

    def __init__(self, *, ledger: Ledger, catalog: Catalog, clock: Clock, ids: Ids, node: NodeId) -> None:
        self._ledger = ledger
        self._catalog = catalog
        self._clock = clock
        self._ids = ids
        self._node = node
        self._moved = asyncio.Condition()
        self.stopping = False
        self.started: list[StartRequest] = []
        self.arrived = asyncio.Event()
        self.open_door = asyncio.Event()
        self.open_door.set()
        self.waiting = 0
        self.watching = 0
        self.told = 0
        self.refusal: Exception | None = None

    async def start(self, request: StartRequest) -> Started:
        """See the port."""
        if self.stopping:
            raise StoppingError("stopping")
        return await asyncio.shield(self._carry_through(request))

    async def _carry_through(self, request: StartRequest) -> Started:
        self.arrived.set()
        await self.open_door.wait()
        now = self._clock.now()
        plan = self._catalog.plan(request.definition)
        saga = Saga(
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
        self.started.append(request)
        new = NewSaga(
            saga=saga, start_token=self._ids.token(), owner=self._node, input_hash=b"", input_hash_recipe="none"
        )
        return await self._ledger.start(new)

    async def wait(self, saga_id: SagaId, *, timeout_s: float) -> StoredSaga | None:
        """See the port."""
        self.waiting += 1
        try:
            async with asyncio.timeout(timeout_s), self._moved:
                while not await self._over(saga_id):
                    await self._moved.wait()
        except TimeoutError:
            pass
        finally:
            self.waiting -= 1
        return await self._ledger.load(saga_id)

    async def watch(self, saga_id: SagaId, *, known_version: int) -> AsyncGenerator[StoredSaga]:
        """See the port."""
        self.watching += 1
        try:
            while True:
                if self.refusal is not None:
                    raise self.refusal
                async with self._moved:
                    stored = await self._ledger.load(saga_id)
                    if stored is not None and stored.version == known_version and not stored.saga.state.ended:
                        await self._moved.wait()
                        continue
                if stored is None:
                    raise UnknownSagaError(saga_id)
                if stored.version != known_version:
                    known_version = stored.version
                    self.told += 1
                    yield stored
                if stored.saga.state.ended:
                    return
        finally:
            self.watching -= 1

    async def grow(self, saga_id: str, *, size: int) -> None:
        """Let a saga change: its failure is told in so many characters."""
        stored = await self._ledger.load(SagaId(saga_id))
        assert stored is not None
        now = self._clock.now()
        failure = Failure(step=None, reason="TOLD", status_code="", message="x" * size, time=now)
        async with self._moved:
            changed = replace(stored.saga, failure=failure, updated_time=now)
            await self._ledger.append(Write(saga=changed, seen_version=stored.version))
            self._moved.notify_all()

    async def refuse_watchers(self, error: Exception) -> None:
        """Let every stream end with this error, and each that begins."""
        async with self._moved:
            self.refusal = error
            self._moved.notify_all()

    async def end(self, saga_id: str) -> None:
        """Let a saga commit."""
        stored = await self._ledger.load(SagaId(saga_id))
        assert stored is not None
        now = self._clock.now()
        ended = replace(stored.saga, state=SagaState.COMMITTED, output=b"", ended_time=now, updated_time=now)
        async with self._moved:
            await self._ledger.append(Write(saga=ended, seen_version=stored.version))
            self._moved.notify_all()

    async def _over(self, saga_id: SagaId) -> bool:
        stored = await self._ledger.load(saga_id)
        return stored is None or stored.saga.state is not SagaState.RUNNING
