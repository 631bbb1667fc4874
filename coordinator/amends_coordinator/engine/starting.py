"""Starts sagas: each is inserted with its first decision and driven from there on, all in one task of its own.

Whoever asked for the start only waits to hear that the saga is durable. Their going away changes nothing: what is on
its way into the ledger would otherwise stand there until a sweep finds it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from amends_coordinator.core.events import Started
from amends_coordinator.core.ids import Instant
from amends_coordinator.core.saga import Saga
from amends_coordinator.core.values import maker
from amends_coordinator.engine.binding import decide_and_bind
from amends_coordinator.engine.hashing import RECIPE, input_hash
from amends_coordinator.engine.standing import Standing, participants_of
from amends_coordinator.engine.tidings import tell
from amends_coordinator.ports.driving import StoppingError
from amends_coordinator.ports.ledger import NewSaga

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import TypeAlias

    from amends_coordinator.core.decision import Decision
    from amends_coordinator.core.ids import NodeId
    from amends_coordinator.core.plan import Plan
    from amends_coordinator.definitions.catalog import Catalog
    from amends_coordinator.definitions.compiled import CompiledDefinition
    from amends_coordinator.engine.driver import Surroundings
    from amends_coordinator.engine.drivers import Drivers
    from amends_coordinator.engine.shares import Shares
    from amends_coordinator.engine.sweeper import Sweeper
    from amends_coordinator.ports import ledger as ledgers
    from amends_coordinator.ports.clock import Ids
    from amends_coordinator.ports.driving import StartRequest

    Heard: TypeAlias = asyncio.Future[ledgers.Started]
    Driving: TypeAlias = Coroutine[object, object, None]
    Begun: TypeAlias = tuple[ledgers.Started, Decision | None, Driving | None]

_saga = maker(Saga)
_new_saga = maker(NewSaga)


class Starting:
    """One node's starts."""

    def __init__(
        self,
        around: Surroundings,
        *,
        ids: Ids,
        catalog: Catalog,
        drivers: Drivers,
        shares: Shares,
        sweeper: Sweeper,
    ) -> None:
        self._around = around
        self._ids = ids
        self._catalog = catalog
        self._drivers = drivers
        self._shares = shares
        self._sweeper = sweeper
        self._under_way: dict[Heard, asyncio.Task[None]] = {}
        self._coming = 0  # on their way into the ledger, and into memory then
        self._stopping = False

    def stop(self) -> None:
        """Take no new work, and drive nothing that is on its way. Safe to repeat."""
        self._stopping = True

    async def start(self, request: StartRequest) -> ledgers.Started:
        """See `ports.driving.Driving.start`."""
        if self._stopping:
            raise StoppingError("this coordinator is stopping and takes no new work")
        definition = self._catalog.compiled(request.definition)
        saga = self._new_saga(request, definition.plan)
        heard: Heard = asyncio.get_running_loop().create_future()
        self._under_way[heard] = asyncio.create_task(self._carry_out(saga, definition, heard), name=f"saga {saga.id}")
        return await heard

    async def _carry_out(self, saga: Saga, definition: CompiledDefinition, heard: Heard) -> None:
        """Start a saga, let it be heard, and drive it if that is to be done here."""
        driving: Driving | None = None
        try:
            started, decision, driving = await self._begin(saga, definition)
            if started.started:
                self._around.telemetry.saga_started(started.stored.saga)
            if started.started and decision is not None:
                tell(self._around.telemetry, decision, before=saga.state)
            if not heard.done():
                heard.set_result(started)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is for whoever asked for the start
            if not heard.done():
                heard.set_exception(error)
        finally:
            heard.cancel()  # if this was cancelled itself
            del self._under_way[heard]
        if driving is not None:
            await driving

    async def _begin(self, saga: Saga, definition: CompiledDefinition) -> Begun:
        names = participants_of(saga, definition, self._around.directory)
        standing = Standing(self._shares)
        if self._sweeper.behind or len(self._drivers) + self._coming >= self._around.settings.max_running_sagas:
            waits_for = standing.waits_for(names)
            return await self._leave_waiting(saga, definition, waits_for, tell=self._sweeper.leave_waiting)
        standing.move(names)
        if standing.turned_away or standing.is_in_the_way:
            waits_for = standing.waits_for(names)
            standing.leave()
            return await self._leave_waiting(
                saga, definition, waits_for, tell=lambda: self._shares.leave_waiting(names)
            )
        self._coming += 1
        self._drivers.coming(saga.id)
        try:
            return await self._begin_here(saga, definition, standing)
        finally:
            self._drivers.has_come(saga.id)
            self._coming -= 1

    async def _leave_waiting(
        self, saga: Saga, definition: CompiledDefinition, waits_for: str, *, tell: Callable[[], None]
    ) -> Begun:
        """Insert a saga that the sweeper takes up once there is room, in its turn."""
        started = await self._insert(saga, definition, owner=None, waits_for=waits_for)
        if started.started:
            tell()
        return started, None, None

    async def _begin_here(self, saga: Saga, definition: CompiledDefinition, standing: Standing) -> Begun:
        """Insert a saga with its first decision, and have its driver ready."""
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
        if not is_driven:
            return started, decision, None
        return started, decision, self._drivers.take(started.stored, definition, decision.effects, standing=standing)

    def _new_saga(self, request: StartRequest, plan: Plan) -> Saga:
        now = self._around.clock.now()
        return _saga(
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
        new = _new_saga(
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
