"""How one case of a fault matrix is played and judged.

The author's world is made, a coordinator drives the saga in it, and what the case is about goes wrong. When the saga
waits for a person, nothing goes wrong any more, and an operator retries whatever is open. When it has ended, what was
held back arrives, at participants whose processes have begun anew; some time passes, and then the world must be
consistent:

* the saga has ended, in a state that this fault may lead to, and every dead letter could be settled by a retry;
* the coordinator kept its promises, and nothing about the end has changed since;
* the author's own checks hold.

A play knows its stage only by the coordinator's public services and by what a fault can do there, so that the same case
can be played on virtual time and over a network.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import grpc

from amends.participant.wire import error_reason
from amends.results import Compensated
from amends.testing.promises import Seen, broken
from amends.testing.report import Result, check_text, letter_text, state_text
from amends.testing.script import Script
from amends.testing.world import Trait
from amends.v1 import operator_service_pb2, saga_pb2, saga_service_pb2
from amends.v1.operator_service_pb2_grpc import OperatorServiceStub
from amends.v1.saga_service_pb2_grpc import SagaServiceStub

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator, Sequence

    from amends.client import SagaClient
    from amends.testing.cases import FaultCase
    from amends.testing.faults import Send
    from amends.testing.matrix import AnyMatrix
    from amends.testing.world import End, World

SAGA_ID = "case"

ONLY_TOLD = frozenset({saga_pb2.DeadLetter.REASON_ABORT_TOO_LATE, saga_pb2.DeadLetter.REASON_TIMED_OUT})
"""Reasons of dead letters that only tell something; there is nothing to repeat."""

NEVER = frozenset({saga_pb2.DeadLetter.REASON_DRIVER_FAILED, saga_pb2.DeadLetter.REASON_UNREADABLE})
"""Reasons for which only a faulty coordinator opens a dead letter."""

ENDED = frozenset({saga_pb2.Saga.STATE_COMMITTED, saga_pb2.Saga.STATE_COMPENSATED})

OPERATOR_ROUNDS = 3
"""So often the operator retries whatever is open, although nothing goes wrong any more; then it is given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How much time a play takes, in seconds of its loop's clock.

    Attributes:
        rest_s: for how long nothing may change after the end.
        too_late_s: longer than one attempt of a call may take.
    """

    rest_s: float = 300.0
    too_late_s: float = 10.0


class Stage(Protocol):
    """Where a case is played."""

    @property
    def client(self) -> SagaClient:
        """Of the coordinator."""
        ...

    @property
    def channel(self) -> grpc.aio.Channel:
        """To the coordinator's public services."""
        ...

    async def standing(self, saga_id: str) -> saga_pb2.Saga:
        """The saga, once nothing of it is left to do without a person."""
        ...

    def kill(self) -> None:
        """End the coordinator as SIGKILL would; another one takes over by itself."""
        ...

    async def restart(self, participant: str | None = None) -> None:
        """End a participant's process, or those of all, and begin new ones, which have nothing in memory."""
        ...

    def timeline(self) -> str:
        """What has happened so far."""
        ...

    def coordinator_faults(self) -> Sequence[str]:
        """What the coordinator itself failed on so far, which it never should."""
        ...


class Play:
    """One case, played once. It is the scene of its troubles.

    Attributes:
        script: what goes wrong: the fault that the stage is given.
    """

    def __init__(self, matrix: AnyMatrix, case: FaultCase, *, seed: int, pace: Pace | None = None) -> None:
        self._matrix, self._case, self._seed, self._pace = matrix, case, seed, pace or Pace()
        self.script = Script(case.troubles(), self)
        self._on: Stage | None = None
        self._begin_s = 0.0
        self._kept: list[Send] = []
        self._killed: list[asyncio.Future[None]] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        self._abort_accepted: bool | None = None
        self._operator_rounds = 0
        self._end = "it never came"
        self._findings: list[str] = []

    # ---- what a trouble can do (`faults.Scene`) -------------------------------------------------------------------

    @property
    def deadline_s(self) -> float:
        """See `faults.Scene`."""
        timeout = self._matrix.saga.timeout
        return self._begin_s + (timeout.total_seconds() if timeout is not None else 3_600.0)

    @property
    def too_late_s(self) -> float:
        """See `faults.Scene`."""
        return self._pace.too_late_s

    async def kill(self) -> NoReturn:
        """See `faults.Scene`."""
        self.script.incarnation += 1
        self._stage.kill()
        while True:  # a killed process goes on with nothing; at the latest the end of the play cancels this
            self._killed.append(asyncio.get_running_loop().create_future())
            await self._killed[-1]

    async def abort(self) -> None:
        """See `faults.Scene`."""
        await asyncio.shield(self._in_task(self._abort()))

    def abort_soon(self) -> None:
        """See `faults.Scene`."""
        self._in_task(self._abort())

    async def restart(self, participant: str) -> None:
        """See `faults.Scene`."""
        await self._stage.restart(participant)

    def keep(self, send: Send) -> None:
        """See `faults.Scene`."""
        self._kept.append(send)

    async def arrive(self) -> None:
        """See `faults.Scene`."""
        while self._kept:
            await self._kept.pop(0)()

    # ---- the play -------------------------------------------------------------------------------------------------

    async def play(self, stage: Stage, world: World) -> None:
        """Play the case and judge, on a stage whose fault is this play's script."""
        self._on, self._begin_s = stage, asyncio.get_running_loop().time()
        try:
            matrix = self._matrix
            handle = await stage.client.start(matrix.saga, matrix.input, saga_id=SAGA_ID)
            saga = await self._until_ended()
            for fault in stage.coordinator_faults():
                self.found(f"the coordinator itself failed: {fault}")
            if saga is not None:
                await self._rest(saga)
                self._judge(saga, handle.end(saga))
                await self._ask(world, handle.end(saga))
        finally:
            for waiting in (*self._tasks, *self._killed):
                waiting.cancel()

    def found(self, finding: str) -> None:
        """Something is wrong."""
        self._findings.append(finding)

    def result(self) -> Result:
        """How it went."""
        return Result(
            case=self._case,
            seed=self._seed,
            end=self._end,
            findings=tuple(self._findings),
            timeline=self._on.timeline() if self._on is not None else "",
            met=self.script.struck,
        )

    async def _until_ended(self) -> saga_pb2.Saga | None:
        """The saga once it has ended and nothing about it is open; None if that never comes."""
        while True:
            saga = await self._stage.standing(SAGA_ID)
            letters = tuple(_open(saga))
            if saga.state in ENDED and not letters:
                return saga
            if not letters:
                self._give_up(saga, "although nothing waits for a person")
                return None
            if self._operator_rounds == OPERATOR_ROUNDS:
                self._give_up(saga, f"although all of it was retried {OPERATOR_ROUNDS} times")
                return None
            self._operator_rounds += 1
            self.script.lift()
            settled = [await self._settle(letter) for letter in letters]
            if not any(settled):
                self._give_up(saga, "and no retry helps")
                return None

    async def _settle(self, letter: saga_pb2.DeadLetter) -> bool:
        """What an operator does about a dead letter; whether it was of use."""
        if letter.reason in NEVER:
            self.found(f"the coordinator opened a dead letter over a fault of its own: {letter_text(letter)}")
        desk = OperatorServiceStub(self._stage.channel)
        try:
            if letter.reason in ONLY_TOLD:
                await desk.ResolveDeadLetter(
                    operator_service_pb2.ResolveDeadLetterRequest(
                        dead_letter_id=letter.dead_letter_id,
                        resolution=saga_pb2.RESOLUTION_HAPPENED,
                        reason="read",
                    )
                )
            else:
                await desk.RetryDeadLetter(
                    operator_service_pb2.RetryDeadLetterRequest(
                        dead_letter_id=letter.dead_letter_id, reason="the fault is lifted"
                    )
                )
        except grpc.aio.AioRpcError as refusal:
            if error_reason(refusal) not in ("RETRY_OUT_OF_ORDER", "DEAD_LETTER_CLOSED"):
                self.found(f"{letter_text(letter)}; retrying it was refused: {refusal.details()}")
            return False
        return True

    def _give_up(self, saga: saga_pb2.Saga, why: str) -> None:
        state = state_text(saga)
        letters = "; ".join(letter_text(letter) for letter in _open(saga))
        self._end = f"{state}, {letters}" if letters else state
        self.found(f"L1: the saga is {state} and never ends, {why}" + (f": {letters}" if letters else ""))

    async def _rest(self, ended: saga_pb2.Saga) -> None:
        """What was held back arrives, time passes, and nothing about the end may change."""
        self.script.lift()
        calls = len(self.script.calls)
        if self._kept:
            await self._stage.restart()  # who knows an old key only by heart has forgotten it by now
        await self.arrive()
        await asyncio.sleep(self._pace.rest_s)
        now = await self._stage.client.get(SAGA_ID)
        for letter in _open(now):
            self.found(f"a dead letter was opened after the end: {letter_text(letter)}")
        if (now.state, now.output, now.failure) != (ended.state, ended.output, ended.failure):
            self.found(f"S8: the saga was {state_text(ended)} and is {state_text(now)} some minutes later")
        once_compensated = {step.name for step in self._matrix.saga.steps_once_compensated}
        for call in self.script.calls[calls:]:
            if call.step not in once_compensated:
                self.found(f"S8: {call} was made after the end")

    def _judge(self, saga: saga_pb2.Saga, end: End) -> None:
        """The end against what the case allows, and the calls against the coordinator's promises."""
        state = state_text(saga)
        self._end = f"{state}: {end.failure}" if isinstance(end, Compensated) else state
        if saga.unproven:
            self._end += ", unproven"
        if self._operator_rounds:
            self._end += ", after an operator's retry"
        if state not in self._case.ends:
            self.found(f"this fault must lead to {' or '.join(sorted(self._case.ends))}, and the saga is {state}")
        if saga.unproven and Trait.UNPROVEN in self._matrix.forbid:
            self.found("the end is unproven, which this matrix forbids")
        if self._operator_rounds and Trait.PARKED in self._matrix.forbid:
            self.found("the saga waited for a person, which this matrix forbids")
        for complaint in broken(
            Seen(saga=self._matrix.saga, calls=self.script.calls, state=state, abort_accepted=self._abort_accepted)
        ):
            self.found(complaint)

    async def _ask(self, world: World, end: End) -> None:
        """The author's own checks."""
        try:
            await world.check(end)
        except (asyncio.CancelledError, KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # noqa: BLE001 - pytest's own failures are no `Exception`
            self.found(check_text(error))

    # ---- small parts ----------------------------------------------------------------------------------------------

    @property
    def _stage(self) -> Stage:
        if self._on is None:
            raise RuntimeError("nothing is played yet")
        return self._on

    async def _abort(self) -> None:
        request = saga_service_pb2.AbortSagaRequest(saga_id=SAGA_ID, reason="the fault matrix aborts")
        try:
            await SagaServiceStub(self._stage.channel).AbortSaga(request)
        except grpc.aio.AioRpcError as refusal:
            if error_reason(refusal) == "PAST_POINT_OF_NO_RETURN":
                self._abort_accepted = bool(self._abort_accepted)
            else:
                self.found(f"aborting the saga was answered {refusal.code().name}: {refusal.details()}")
        else:
            self._abort_accepted = True

    def _in_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name="fault matrix")
        self._tasks.add(task)
        return task


def _open(saga: saga_pb2.Saga) -> Iterator[saga_pb2.DeadLetter]:
    return (letter for letter in saga.dead_letters if not letter.HasField("close_time"))
