"""The drivers of a node: starts them, keeps and watches their tasks, and takes up again those that fail.

Nothing that one driver raises reaches the others (L2). A saga whose driver failed is loaded anew and taken up again
after a pause that doubles each time; until then the sweeper leaves it alone. One that fails again and again gets a dead
letter besides, so that a person hears of it.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from amends_coordinator.core.decide import decide
from amends_coordinator.core.events import Adopted, DriverFailed
from amends_coordinator.core.states import DeadLetterReason, SagaState
from amends_coordinator.core.text import clean_text
from amends_coordinator.definitions.errors import DamagedPayloadError, DescriptorError, PayloadError
from amends_coordinator.engine.driver import Driver, SagaLostError
from amends_coordinator.engine.standing import Standing, participants_of
from amends_coordinator.engine.tidings import tell
from amends_coordinator.ports.ledger import (
    LedgerError,
    NodeFencedError,
    StoredSaga,
    UnknownPlanError,
    UnreadableSagaError,
    Write,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from amends_coordinator.core.effects import Effect
    from amends_coordinator.core.events import Event
    from amends_coordinator.core.ids import Instant, SagaId
    from amends_coordinator.core.saga import Saga
    from amends_coordinator.definitions.catalog import Catalog
    from amends_coordinator.definitions.compiled import CompiledDefinition
    from amends_coordinator.engine.driver import Surroundings
    from amends_coordinator.engine.shares import Shares

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 30.0
LARGEST_DOUBLING = 20
UNREADABLE_PAUSE_S = 60.0
FAILURES_BEFORE_DEAD_LETTER = 5
ENDS_REMEMBERED = 1_000
LARGEST_END_REMEMBERED_BYTES = 16_384
RESTING = frozenset({SagaState.COMMITTED, SagaState.COMPENSATED, SagaState.COMPENSATION_FAILED})


@dataclass(frozen=True, slots=True)
class Failures:
    """How often in a row the driver of a saga has failed, and what it said last."""

    count: int
    last: str


class Drivers:
    """All sagas that this node holds in memory.

    Args:
        around: what every driver works with.
        catalog: the compiled definitions.
        shares: how the room in memory is shared out.
        settled: called each time a saga has ended or can't go on without a person, as it was made durable then.
        written: called with a saga's id each time it was written, and each time a driver takes it up.
        left: called each time a driver has let go of a saga: its id, and the saga as it was made durable last (None
            where the driver failed).
        fenced: called when the ledger says that this node is shut out.
    """

    def __init__(
        self,
        around: Surroundings,
        catalog: Catalog,
        *,
        shares: Shares,
        settled: Callable[[StoredSaga], None],
        written: Callable[[SagaId], None],
        left: Callable[[SagaId, StoredSaga | None], None],
        fenced: Callable[[NodeFencedError], None],
    ) -> None:
        self._around = around
        self._catalog = catalog
        self._shares = shares
        self._settled = settled
        self._written = written
        self._left = left
        self._fenced = fenced
        self._tasks: dict[SagaId, asyncio.Task[None]] = {}
        self._in_memory: dict[SagaId, Driver] = {}
        self._ended: OrderedDict[SagaId, StoredSaga] = OrderedDict()
        self._failures: dict[SagaId, Failures] = {}
        self._pauses: dict[SagaId, asyncio.TimerHandle] = {}
        self._coming: dict[SagaId, int] = {}  # how many requests are inserting a saga
        self._nudged: set[SagaId] = set()
        self._stopping = False

    def __len__(self) -> int:
        return len(self._tasks)

    @property
    def held(self) -> frozenset[SagaId]:
        """The sagas that are driven now, or will be taken up again after a pause."""
        return frozenset((*self._tasks, *self._pauses))

    def find(self, saga_id: SagaId) -> StoredSaga | None:
        """A saga that is driven, or ended lately, as it was made durable last; None where it isn't in memory."""
        driver = self._in_memory.get(saga_id)
        return self._ended.get(saga_id) if driver is None else driver.stored

    def driven(self, saga_id: SagaId) -> StoredSaga | None:
        """A saga that is driven just now, as it was made durable last."""
        driver = self._in_memory.get(saga_id)
        return None if driver is None else driver.stored

    def drive(
        self,
        stored: StoredSaga,
        definition: CompiledDefinition,
        first: Event,
        *,
        standing: Standing,
    ) -> None:
        """Drive a saga from an event on."""
        saga_id = stored.saga.id
        driving = self._take(stored, definition, first, (), standing=standing)
        self._tasks[saga_id] = asyncio.create_task(driving, name=f"saga {saga_id}")

    def take(
        self,
        stored: StoredSaga,
        definition: CompiledDefinition,
        effects: tuple[Effect, ...],
        *,
        standing: Standing,
    ) -> Coroutine[object, object, None]:
        """Drive a saga that the running task has begun, from the effects of its first decision on: in that task, which
        has to await what this answers.
        """
        task = asyncio.current_task()
        if task is not None:
            self._tasks[stored.saga.id] = task
        return self._take(stored, definition, None, effects, standing=standing)

    def _take(
        self,
        stored: StoredSaga,
        definition: CompiledDefinition,
        first: Event | None,
        effects: tuple[Effect, ...],
        *,
        standing: Standing,
    ) -> Coroutine[object, object, None]:
        """Have a driver from this moment on, so that a stop and those who wait find it; answers its work."""
        saga_id = stored.saga.id
        driver = Driver(
            stored, definition, self._around, standing=standing, settled=self._settled, written=self._written
        )
        if self._stopping:
            driver.wind_down()
        if saga_id in self._nudged:
            driver.nudge()
        self._in_memory[saga_id] = driver
        self._written(saga_id)
        return self._watch(saga_id, driver, first, effects)

    def nudge(self, saga_id: SagaId) -> None:
        """Somebody has written this saga past its driver: have that look at it, if it is here. One whose drivers have
        failed is taken up again at once, as if none had: a person has done something about it.
        """
        driver = self._in_memory.get(saga_id)
        pause = self._pauses.get(saga_id)
        if driver is not None:
            driver.nudge()
        elif pause is not None:
            pause.cancel()
            self._failures.pop(saga_id, None)
            self._take_up(saga_id)
        elif saga_id in self._coming:
            self._nudged.add(saga_id)

    def coming(self, saga_id: SagaId) -> None:
        """A saga is being inserted. Until it `has_come` its nudges are kept for its driver, which decides nothing
        before its first calls have ended. (One that is taken up from the ledger decides at once, and hears then that it
        was written.)
        """
        self._coming[saga_id] = self._coming.get(saga_id, 0) + 1

    def has_come(self, saga_id: SagaId) -> None:
        """It was inserted and has a driver, or neither."""
        left = self._coming.pop(saga_id) - 1
        if left:
            self._coming[saga_id] = left
        else:
            self._nudged.discard(saga_id)

    async def adopt(self, stored: StoredSaga) -> tuple[str, ...]:
        """Drive a saga that nobody in this process drives: what it has in flight nobody here will hear of. Answers the
        participants that it has to do with. While the node stops it is left to whoever opens the ledger next.
        """
        definition = await self._definition_of(stored.saga)
        names = participants_of(stored.saga, definition, self._around.directory)
        if stored.saga.id not in self._tasks and not self._stopping:
            standing = Standing(self._shares)
            standing.move(names)
            self.drive(stored, definition, Adopted(self._around.moment()), standing=standing)
        return names

    async def stop(self, grace_s: float) -> None:
        """Let calls under way end for `grace_s` seconds, then cancel them; sagas that only wait are let go of at
        once.
        """
        self._stopping = True  # one that fails from now on is taken up by whoever opens the ledger next
        for pause in self._pauses.values():
            pause.cancel()
        self._pauses.clear()
        for driver in self._in_memory.values():
            driver.wind_down()
        tasks = tuple(self._tasks.values())
        if tasks:
            await asyncio.wait(tasks, timeout=grace_s)
        tasks = tuple(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _keep(self, saga_id: SagaId, task: asyncio.Task[None]) -> None:
        self._tasks[saga_id] = task

    async def _watch(self, saga_id: SagaId, driver: Driver, first: Event | None, effects: tuple[Effect, ...]) -> None:
        stored: StoredSaga | None = None
        try:
            await driver.run(first, effects)
            stored = driver.stored
            self._failures.pop(saga_id, None)
            self._remember_end(stored)
        except SagaLostError:
            self._failures.pop(saga_id, None)
        except NodeFencedError as error:
            self._fenced(error)
        except (UnreadableSagaError, DamagedPayloadError, PayloadError) as error:
            await self.set_aside(saga_id, error)
        except Exception as error:  # noqa: BLE001 - one saga's fault must not stop the others.
            self._failed(saga_id, error)
        finally:
            self._in_memory.pop(saga_id, None)
            self._tasks.pop(saga_id, None)
            self._left(saga_id, stored)

    def _remember_end(self, stored: StoredSaga) -> None:
        """Keep the last ends for those who ask right after a start: ends never change (S8)."""
        if stored.saga.state.ended and _payload_bytes(stored.saga) <= LARGEST_END_REMEMBERED_BYTES:
            self._ended[stored.saga.id] = stored
            if len(self._ended) > ENDS_REMEMBERED:
                self._ended.popitem(last=False)

    def forget_ends(self, ended_before: Instant) -> None:
        """Forget the sagas that ended before an instant: retention has emptied them in the ledger."""
        for saga_id in [each for each, stored in self._ended.items() if _has_ended(stored.saga, ended_before)]:
            del self._ended[saga_id]

    def _failed(self, saga_id: SagaId, error: Exception) -> None:
        self._around.telemetry.driver_failed(saga_id, error)
        if self._stopping:
            return
        count = self._failures[saga_id].count if saga_id in self._failures else 0
        self._failures[saga_id] = Failures(count + 1, repr(error))
        pause_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** min(count, LARGEST_DOUBLING))
        self._pauses[saga_id] = asyncio.get_running_loop().call_later(pause_s, self._take_up, saga_id)

    async def set_aside(self, saga_id: SagaId, error: Exception) -> None:
        """Leave a saga alone that can't be read, and have a person hear of it. It is looked at again after a while, and
        at once when they have done something about it.
        """
        self._around.telemetry.saga_unreadable(saga_id, error)
        if self._stopping:
            return
        loop = asyncio.get_running_loop()
        self._pauses[saga_id] = loop.call_later(UNREADABLE_PAUSE_S, self._take_up, saga_id)
        with suppress(LedgerError):  # it is told when it is looked at again
            await self._around.ledger.put_dead_letter(
                saga_id,
                reason=DeadLetterReason.UNREADABLE,
                last_error=clean_text(str(error)),
                now=self._around.clock.now(),
            )

    def _take_up(self, saga_id: SagaId) -> None:
        self._pauses.pop(saga_id, None)
        if saga_id not in self._tasks:
            self._keep(saga_id, asyncio.create_task(self._reload(saga_id), name=f"saga {saga_id} again"))

    async def _reload(self, saga_id: SagaId) -> None:
        try:
            stored = await self._around.ledger.load(saga_id)
            if stored is None or stored.saga.due_time is None or stored.owner != self._around.node:
                self._tasks.pop(saga_id, None)
                self._failures.pop(saga_id, None)
                return
            failures = self._failures.get(saga_id)
            if failures is not None and failures.count >= FAILURES_BEFORE_DEAD_LETTER:
                stored = await self._ask_for_a_person(stored, failures)
            self._tasks.pop(saga_id, None)
            await self.adopt(stored)
        except UnreadableSagaError as error:
            self._tasks.pop(saga_id, None)
            await self.set_aside(saga_id, error)
        except Exception as error:  # noqa: BLE001 - as above: told, and tried again.
            self._tasks.pop(saga_id, None)
            self._failed(saga_id, error)

    async def _ask_for_a_person(self, stored: StoredSaga, failures: Failures) -> StoredSaga:
        """Open a dead letter, unless one is, that says that the coordinator fails on this saga. It goes on trying."""
        message = clean_text(f"the coordinator failed on it {failures.count} times, last with {failures.last}")
        decision = decide(stored.saga, DriverFailed(self._around.moment(), message))
        if not decision.changed:
            return stored
        letters = decision.records.dead_letters
        write = Write(saga=decision.saga, seen_version=stored.version, dead_letters=letters)
        version = await self._around.ledger.append(write)
        tell(self._around.telemetry, decision, before=stored.saga.state)
        return StoredSaga(saga=decision.saga, version=version, owner=stored.owner)

    async def _definition_of(self, saga: Saga) -> CompiledDefinition:
        found = self._catalog.find(saga.plan.name, saga.plan.version)
        if found is not None:
            return found
        stored = await self._around.ledger.get_definition(saga.plan.name, saga.plan.version)
        if stored is None:
            raise UnknownPlanError(f"saga {saga.id} runs {saga.plan.name} {saga.plan.version}: not in the ledger")
        try:
            return self._catalog.compiled(stored)
        except DescriptorError as error:
            raise UnknownPlanError(f"saga {saga.id} runs a definition that can't be read: {error}") from error


def _has_ended(saga: Saga, before: Instant) -> bool:
    return saga.ended_time is not None and saga.ended_time < before


def _payload_bytes(saga: Saga) -> int:
    """How much memory a saga's payloads take; the rest of it is small."""
    calls = sum(len(intent.request) + len(intent.response or b"") for intent in saga.intents)
    return len(saga.input) + len(saga.output or b"") + calls
