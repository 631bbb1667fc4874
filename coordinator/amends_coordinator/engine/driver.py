"""Drives one saga: decides one event after the other, writes each decision, and carries out its effects once durable.

A driver holds its saga only while something is going on. When all that is left is to wait for longer than a few
seconds, or others wait for its room,
or the saga has ended, it returns, and the sweeper brings the saga back by its due time.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from amends_coordinator.core.answer import Answer
from amends_coordinator.core.effects import (
    DIRECTION_OF,
    CallAction,
    CallCompensation,
    CallLookup,
    CancelCall,
    Finish,
    IgnoreLateAnswer,
    WakeAt,
)
from amends_coordinator.core.events import AttemptEnded, Event, Moment, Woken
from amends_coordinator.core.guards import ROLLING_BACK
from amends_coordinator.core.ids import Instant
from amends_coordinator.core.saga import idempotency_key
from amends_coordinator.core.states import Direction, Outcome
from amends_coordinator.core.values import maker
from amends_coordinator.engine.binding import decide_and_bind
from amends_coordinator.engine.calling import begun_later, call_request
from amends_coordinator.engine.standing import place_of, places_of
from amends_coordinator.engine.tidings import tell
from amends_coordinator.ports.ledger import LedgerUnavailableError, StoredSaga, SupersededError, Write

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from amends_coordinator.core.decision import Decision
    from amends_coordinator.core.effects import Call, Effect
    from amends_coordinator.core.ids import NodeId, SagaId, StepName
    from amends_coordinator.core.states import SagaState
    from amends_coordinator.definitions.compiled import CompiledDefinition
    from amends_coordinator.engine.lease import Lease
    from amends_coordinator.engine.settings import EngineSettings
    from amends_coordinator.engine.standing import Standing
    from amends_coordinator.ports.clock import Clock
    from amends_coordinator.ports.directory import Directory
    from amends_coordinator.ports.ledger import Ledger
    from amends_coordinator.ports.participants import CallRequest, Participants
    from amends_coordinator.ports.telemetry import Telemetry

_moment = maker(Moment)
_attempt_ended = maker(AttemptEnded)
_stored = maker(StoredSaga)
_new_write = maker(Write)

LEDGER_PAUSE_S = 0.5
"""Pause before a write is sent again to a ledger that can't be reached. The saga holds still meanwhile."""


OUTAGE_US = 250_000
"""A decision that was durable later than this was held up: no attempt's budget is charged for it."""


_CROWDED = "participant {name} has its share of the sagas in memory; this one waits in the ledger for its turn"


class SagaLostError(Exception):
    """Another incarnation drives this saga now: let go of it, and call nothing more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What every driver of a node works with."""

    ledger: Ledger
    participants: Participants
    directory: Directory
    clock: Clock
    telemetry: Telemetry
    settings: EngineSettings
    node: NodeId
    lease: Lease

    def moment(self) -> Moment:
        """Now, at this node, with a fresh random fraction."""
        return _moment(self.clock.now(), self.node, self.clock.fraction(), self.settings.abort_grace_us)


class CallUnderWay:
    """A call that a task makes. It can be cut short without ending the task, which may have more to do."""

    __slots__ = ("_is_cut", "effect", "key", "task")

    def __init__(self, effect: Call, task: asyncio.Task[None] | None = None) -> None:
        self.effect = effect
        self.key = _key(effect)
        self.task = task
        self._is_cut = False

    def cut(self) -> None:
        """Have the task stop waiting for it."""
        self._is_cut = True
        if self.task is not None:
            self.task.cancel()

    def goes_on_without(self) -> bool:
        """Whether the task, which was cancelled in the middle of the call, was so only for the call's sake: nobody else
        has asked for its end.
        """
        return self._is_cut and self.task is not None and not self.task.uncancel()


class Driver:
    """One saga in memory. `run` is its whole life; nothing else changes it.

    Whoever brings an event decides it: the task of a call that has ended goes on with the decision, its write, and the
    next call if there is one. While one task decides, others only leave their events with it, so decisions never
    overlap. The first of the calls is made by `run` itself; so a saga that goes on well is one task from its beginning
    to its end.

    Args:
        stored: the saga as it was made durable last.
        definition: its definition, compiled.
        surroundings: what every driver of the node works with.
        standing: where the saga counts; the driver keeps it true.
        settled: called when the saga has ended or can't go on without a person, each time that happens.
        written: called with the saga's id each time it was written, here or past this driver.
    """

    def __init__(
        self,
        stored: StoredSaga,
        definition: CompiledDefinition,
        surroundings: Surroundings,
        *,
        standing: Standing,
        settled: Callable[[StoredSaga], None],
        written: Callable[[SagaId], None],
    ) -> None:
        self._saga = stored.saga
        self._version = stored.version
        self._definition = definition
        self._around = surroundings
        self._standing = standing
        self._settled = settled
        self._written = written
        self._events: deque[Event | None] = deque()  # None: somebody else wrote the saga
        self._deciding = False
        self._to_call: deque[Call] = deque()
        self._calls: dict[tuple[StepName, Direction], CallUnderWay] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._running: asyncio.Task[None] | None = None  # the task of `run`, as long as something is left to do
        self._rest: asyncio.Future[None] | None = None  # what it waits for while others drive the saga
        self._failure: BaseException | None = None
        self._wake_time: Instant | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_time = Instant(0)
        self._winding_down = False

    @property
    def stored(self) -> StoredSaga:
        """The saga as it was made durable last."""
        return _stored(saga=self._saga, version=self._version, owner=self._around.node)

    async def run(self, first: Event | None, effects: tuple[Effect, ...] = ()) -> None:
        """Drive the saga until it ends or only waits; `stored` says how it stands then.

        Args:
            first: the event to begin with; None if `effects` of a decision that is durable already are the beginning.
            effects: those effects.

        Raises:
            SagaLostError: it isn't this node's any more.
            NodeFencedError: this node is shut out of the ledger.
        """
        running = self._running = asyncio.current_task()
        try:
            for effect in effects:
                self._carry_out(effect)
            if first is not None:
                self._events.appendleft(first)  # before a nudge that came while this was waiting for its turn
            await self._decide_all()
            await self._call_on(self._take_call(running))
            if self._running is not None:
                self._rest = asyncio.get_running_loop().create_future()
                await self._rest
        except asyncio.CancelledError:
            if self._failure is None or (running is not None and running.uncancel()):
                raise
            raise self._failure from None
        finally:
            await self._let_go()

    def wind_down(self) -> None:
        """Let go of the saga as soon as no call is under way: the node is stopping, and the next one goes on with
        it.
        """
        self._winding_down = True
        if not self._deciding:
            self._end_if_at_rest()

    def nudge(self) -> None:
        """Somebody else has written the saga: look at it again and go on with what stands there now.

        A driver that is letting go of it begins nothing any more: the saga is due, and the sweeper takes it up.
        """
        self._events.append(None)
        if self._running is not None and not self._deciding:
            self._spawn(self._go_on(), f"saga {self._saga.id} is looked at again")

    async def _decide_all(self) -> None:
        """Decide the events that wait, one after the other, unless another task is at it: that one takes ours too.

        Calls that the last decision wants are left to whoever asked for the decisions.
        """
        if self._deciding:
            return
        self._deciding = True
        try:
            while self._events:
                if self._to_call:
                    self._begin_calls()
                await self._decide(self._events.popleft())
        finally:
            self._deciding = False
        self._end_if_at_rest()

    def _end_if_at_rest(self) -> None:
        """End `run` if nothing is left to do, or nothing for longer than a waiting saga may stay in memory."""
        if self._running is None:
            return
        if not self._at_rest():
            self._set_timer()
            return
        self._running = None
        if self._rest is not None and not self._rest.done():
            self._rest.set_result(None)

    def _at_rest(self) -> bool:
        if self._events or self._calls or self._to_call:
            return False
        if self._wake_time is None or self._winding_down:
            return True
        if self._standing.is_in_the_way:
            return True
        return self._wake_time - self._around.clock.now() > self._around.settings.idle_unload_s * 1e6

    async def _decide(self, event: Event | None) -> None:
        """Decide one event, make the decision durable, tell of it, and carry out its effects."""
        if event is None:
            await self._look_again()
            event = Woken(self._around.moment())
        decision, before = await self._write(event)
        if decision.changed:
            for intent in decision.records.intents:
                self._around.telemetry.intent_moved(decision.saga, intent)
            tell(self._around.telemetry, decision, before=before)
            if isinstance(event, AttemptEnded):
                self._tell_end(event)
            self._wake_time = None
            self._written(self._saga.id)
        for effect in decision.effects:
            self._carry_out(effect)
        if self._saga.state in ROLLING_BACK:
            self._withdraw_actions()

    def _withdraw_actions(self) -> None:
        """Actions that still wait for a slot haven't happened: they end now, and nothing is owed for them."""
        for step, direction in self._calls:
            if direction is Direction.ACTION:
                self._around.participants.withdraw(idempotency_key(self._saga.id, step, direction))

    async def _write(self, event: Event) -> tuple[Decision, SagaState]:
        """Decide and make durable; answers the state that the decision saw, too. An event is decided again when
        somebody else wrote the saga in between: they have told of what they did.
        """
        while True:
            limit = self._around.settings.payload_limit_bytes
            decision = decide_and_bind(
                self._saga, event, self._definition, self._around.directory, payload_limit_bytes=limit
            )
            before = self._saga.state
            if not decision.changed:
                return decision, before
            try:
                self._version = await self._append(decision)
            except SupersededError as superseded:
                self._take_over(superseded.current)
                continue
            waited_us = self._around.clock.now() - event.at.now
            if waited_us > OUTAGE_US:
                decision = begun_later(decision, waited_us)
            self._saga = decision.saga
            return decision, before

    async def _append(self, decision: Decision) -> int:
        """Write until the ledger answers: an answer in hand is never thrown away because the database is down."""
        records, names = decision.records, places_of(decision.saga)
        write = _new_write(
            saga=decision.saga,
            seen_version=self._version,
            intents=records.intents,
            dead_letters=records.dead_letters,
            waits_for=self._standing.waits_for(names),
        )
        while True:
            began_s = self._around.clock.elapsed_s()
            try:
                version = await self._around.ledger.append(write)
                self._around.lease.renew(began_s)
                self._standing.move(names)
                return version
            except LedgerUnavailableError:
                await asyncio.sleep(LEDGER_PAUSE_S)

    def _take_over(self, current: StoredSaga) -> None:
        if current.owner != self._around.node:
            raise SagaLostError(f"saga {current.saga.id} is driven by {current.owner or 'nobody'} now")
        self._saga, self._version = current.saga, current.version
        self._written(current.saga.id)
        self._standing.move(places_of(self._saga))
        self._forget_calls_that_were_closed()

    def _forget_calls_that_were_closed(self) -> None:
        """Stop waiting for calls that whoever wrote the saga has closed: their answers decide nothing any more."""
        for key in [key for key in self._calls if not self._is_in_flight(*key)]:
            self._calls.pop(key).cut()
        self._to_call = deque(effect for effect in self._to_call if self._is_in_flight(*_key(effect)))

    def _is_in_flight(self, step: StepName, direction: Direction) -> bool:
        intent = self._saga.intent(step, direction)
        return intent is not None and intent.in_flight

    async def _look_again(self) -> None:
        """Take the saga over as it stands in the ledger, if it was written by somebody else."""
        while True:
            try:
                current = await self._around.ledger.load(self._saga.id)
            except LedgerUnavailableError:
                await asyncio.sleep(LEDGER_PAUSE_S)
                continue
            if current is not None and current.version != self._version:
                self._take_over(current)
            return

    def _tell_end(self, event: AttemptEnded) -> None:
        """Tell of an attempt's end; the ledger has it already."""
        if event.answer.outcome is Outcome.NOT_SENT:
            self._around.telemetry.call_not_sent(self._saga, event.step, event.direction, event.answer)
        intent = self._saga.intent(event.step, event.direction)
        if intent is None:
            return
        for attempt in reversed(intent.attempts):
            if attempt.number == event.attempt:
                self._around.telemetry.attempt_ended(self._saga, intent, attempt, event.at.now)
                return

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case WakeAt():
                self._wake_time = effect.time
            case CallAction() | CallCompensation() | CallLookup():
                self._to_call.append(effect)
            case CancelCall():
                call = self._calls.pop((effect.step, effect.direction), None)
                if call is not None:
                    call.cut()
            case Finish():
                self._settled(self.stored)
            case IgnoreLateAnswer():
                self._around.telemetry.late_answer(self._saga)
            case _:
                pass  # Park was told when its row was

    def _begin_calls(self) -> None:
        """Make the calls that decisions want, each in a task of its own."""
        while self._to_call:
            effect = self._to_call.popleft()
            call = CallUnderWay(effect)
            self._calls[call.key] = call
            call.task = self._spawn(self._call_on(call), f"saga {self._saga.id} calls {effect.step}")

    def _take_call(self, task: asyncio.Task[None] | None) -> CallUnderWay | None:
        """One of the calls that the last decision wants, to be made by this task, which runs now."""
        if not self._to_call:
            return None
        call = CallUnderWay(self._to_call.popleft(), task)
        self._calls[call.key] = call
        return call

    async def _call_on(self, call: CallUnderWay | None) -> None:
        """Make a call, decide what its answer means, and go on with the next call where there is one."""
        self._begin_calls()
        while call is not None:
            await self._call(call)
            await self._decide_all()
            call = self._take_call(call.task)
            if self._to_call:
                self._begin_calls()

    async def _call(self, call: CallUnderWay) -> None:
        """Make one attempt and leave its end as an event, unless it is cut short."""
        effect = call.effect
        try:
            if not self._around.lease.holds:
                await self._around.lease.held()
            request = call_request(
                self._saga,
                effect,
                self._definition,
                now=self._around.clock.now(),
                trace_ratio=self._around.settings.trace_ratio,
            )
            answer = await self._send(request)
        except asyncio.CancelledError:
            if call.goes_on_without():
                return
            raise
        except Exception as error:  # noqa: BLE001 - the port promises never to raise; if it does, nothing is known.
            self._around.telemetry.driver_failed(self._saga.id, error)
            answer = Answer(outcome=Outcome.UNKNOWN, message="the coordinator failed while it was calling")
        self._calls.pop(call.key, None)
        self._events.append(_attempt_ended(self._around.moment(), *call.key, effect.attempt, answer))

    async def _send(self, request: CallRequest) -> Answer:
        """Call a participant, unless it has its share of the memory already."""
        standing = self._standing
        names = standing.names
        name = names[0] if len(names) == 1 else place_of(request.participant, request.method)
        if not standing.admits(name):
            return Answer(outcome=Outcome.NOT_SENT, message=_CROWDED.format(name=name))
        answer = await self._around.participants.call(request)
        standing.heard(name, answer)
        return answer

    async def _go_on(self) -> None:
        await self._decide_all()
        self._begin_calls()

    def _spawn(self, work: Coroutine[object, object, None], name: str) -> asyncio.Task[None]:
        """Run something beside `run`, which ends with its exception if it has one."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is None:
            return
        if self._running is None or self._failure is not None:
            self._around.telemetry.driver_failed(self._saga.id, error)
            return
        self._failure = error
        self._running.cancel()

    def _set_timer(self) -> None:
        """Have the saga woken at its time. A timer that fires before it is good enough: `_wake` looks at the time
        again,
        and a saga that goes on well never needs a second one.
        """
        if self._wake_time is None or (self._timer is not None and self._timer_time <= self._wake_time):
            return
        if self._timer is not None:
            self._timer.cancel()
        delay_s = max(0.0, (self._wake_time - self._around.clock.now()) / 1e6)
        self._timer_time = self._wake_time
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._wake)

    def _wake(self) -> None:
        self._timer = None
        if self._wake_time is None or self._around.clock.now() < self._wake_time:
            self._set_timer()
        else:
            self._events.append(Woken(self._around.moment()))
            self._spawn(self._go_on(), f"saga {self._saga.id} wakes")

    async def _let_go(self) -> None:
        """Cancel what is still going on, and wait until it has stopped: no call outlives its driver."""
        self._standing.leave()
        if self._timer is not None:
            self._timer.cancel()
        self._running = None  # from now on nobody waits for the others: what still fails is told by `_ended`
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.gather(*tasks, return_exceptions=True)


def _key(effect: Call) -> tuple[StepName, Direction]:
    return effect.step, DIRECTION_OF[type(effect)]
