"""The writer: one thread that owns the write connection, and the queue before it.

Whatever waits when the last transaction is done, or comes while the next one begins, goes into that (group commit);
nothing waits for company. A batch holds at most one decision per saga, apart from starts that compete for an id.
Claims, heartbeats and other single tasks have transactions of their own.

What can go wrong, and what happens then:

* An error at COMMIT leaves open whether the batch is stored. The connection is dropped and the batch sent again, under
  the same name, on a new one: its guards recognise what is stored already.
* Any other database error: the same, with growing pauses. Whoever has waited for `patience_s` gets
  `LedgerUnavailableError`; the writer goes on trying for those that come later.
* Data that the database refuses: the batch is split until the guilty decision is alone, and that one gets
  `WriteRefusedError`.
* Rows that somebody else keeps locked: the decisions about those sagas are tried again, each after a pause of its own
  that grows, and all others go on. Where only a time limit shows that something is locked, the batch is split until the
  decision that waits is alone; it is sent alone from then on, and waits for the lock only for a moment.
* The database says nothing at all: the connection is cut, which is an error like others.
* The lock of the whole ledger is lost: nothing is sent any more, see `advisory_lock`.
* This node was fenced: everybody in the batch gets `NodeFencedError`.

Answers go to the event loop with one `call_soon_threadsafe` per batch.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import structlog

from amends_coordinator.ledger.batch import Applied, Batch, Decision, LockedElsewhere, Transaction, Verdict, encode
from amends_coordinator.ledger.connection import DataRefusedError, LockWaitError, WriteConnection
from amends_coordinator.ledger.last_writes import LastWrites
from amends_coordinator.ledger.statements import Statements
from amends_coordinator.ledger.waiting import WaitingDecisions
from amends_coordinator.ports.ledger import LedgerError, LedgerUnavailableError, NewSaga, Write, WriteRefusedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from sqlalchemy import Connection

    from amends_coordinator.core.ids import NodeId
    from amends_coordinator.ledger.batch import DecisionRows
    from amends_coordinator.ledger.dialect import SqlDialect

T = TypeVar("T")

BatchWritten: TypeAlias = "Callable[[int, float], None]"
"""Hears of each batch: how many decisions it held, and how many seconds its transaction took."""

SENT_LIMIT = 20_000
"""Sagas whose last write is remembered."""

LOOK_INTERVAL_S = 0.5
"""How often the writer's thread is looked after."""

_FIRST_PAUSE_S = 0.02
_LONGEST_PAUSE_S = 1.0

_log: Any = structlog.get_logger(__name__)  # structlog's loggers are untyped proxies


@dataclass(slots=True, kw_only=True)
class Statistics:
    """Counts since the ledger was opened: transactions committed, batches of decisions among them, decisions in these,
    and how often a transaction was to be sent again after an error.
    """

    commits: int = 0
    batches: int = 0
    decisions: int = 0
    largest_batch: int = 0
    sent_again: int = 0


@dataclass(eq=False, slots=True)
class _Task:
    """A transaction of its own. `run` answers the result; it may run more than once."""

    future: asyncio.Future[Any]  # Any: each task has its own result, typed again where it is submitted
    queued_time_s: float
    run: Callable[[Connection], object]
    needs_fence: bool


class _Stop:
    """Ends the thread."""


class Writer:
    """See the module. Made and used on one event loop; everything behind the queue runs in the thread."""

    def __init__(
        self,
        dialect: SqlDialect,
        node: NodeId,
        *,
        patience_s: float,
        require_lock: Callable[[], None],
        batch_written: BatchWritten | None = None,
    ) -> None:
        self._batch_written = batch_written
        self._took_s = 0.0
        self._dialect = dialect
        self._require_lock = require_lock
        self._node = node
        self._patience_s = patience_s
        self._connection = WriteConnection(dialect)
        self._statements = Statements(dialect, self._connection.compiler)
        self._loop = asyncio.get_running_loop()
        self._leaving: list[Decision | _Task | _Stop] = []
        self._queue: queue.SimpleQueue[list[Decision | _Task | _Stop]] = queue.SimpleQueue()
        self._decisions = WaitingDecisions()
        self._tasks: deque[_Task] = deque()
        self._in_hand: Sequence[Decision | _Task] = ()
        self._running = True
        self._stopping = threading.Event()
        self._batch_number = 0
        self._last = LastWrites(SENT_LIMIT)
        self._pause_s = _FIRST_PAUSE_S
        self._statistics = Statistics()
        self._sent_time_s: float | None = None
        self._looking = self._loop.call_later(LOOK_INTERVAL_S, self._look)
        self._thread = threading.Thread(target=self._run, name="ledger-writer", daemon=True)
        self._thread.start()

    @property
    def statistics(self) -> Statistics:
        """What was done so far; a copy, since the thread goes on counting."""
        return replace(self._statistics)

    def decide(self, content: NewSaga | Write) -> asyncio.Future[Verdict]:
        """Queue a decision; the future has its verdict, or a `LedgerError`."""
        future: asyncio.Future[Verdict] = self._loop.create_future()
        self._put(Decision(future, time.monotonic(), content, content.saga.id))
        return future

    def run(self, task: Callable[[Connection], T]) -> asyncio.Future[T]:
        """Queue a transaction of its own, which a fenced node does not make. `task` may run more than once."""
        future: asyncio.Future[T] = self._loop.create_future()
        self._put(_Task(future, time.monotonic(), task, needs_fence=True))
        return future

    def run_unfenced(self, task: Callable[[Connection], T]) -> asyncio.Future[T]:
        """The same without looking at the node's own row: for the transaction that takes the ledger."""
        future: asyncio.Future[T] = self._loop.create_future()
        self._put(_Task(future, time.monotonic(), task, needs_fence=False))
        return future

    async def stop(self) -> None:
        """Finish what waits (or fail it, while the database is away) and end the thread."""
        self._stopping.set()
        self._leaving.append(_Stop())
        self._hand_over()
        await asyncio.to_thread(self._thread.join)
        self._looking.cancel()

    def _look(self) -> None:
        """Give up a database that says nothing any more: the thread, which waits for it, can't."""
        sent_time_s = self._sent_time_s
        if sent_time_s is not None and time.monotonic() - sent_time_s > self._dialect.answer_bound_s:
            self._connection.cut()
        self._looking = self._loop.call_later(LOOK_INTERVAL_S, self._look)

    def _put(self, item: Decision | _Task) -> None:
        if self._stopping.is_set():
            item.future.set_exception(LedgerUnavailableError("the ledger is closed: open it again before using it"))
        else:
            if not self._leaving:
                self._loop.call_soon(self._hand_over)
            self._leaving.append(item)

    def _hand_over(self) -> None:
        """Give the thread what one turn of the event loop has decided: those that are ready together travel
        together.
        """
        leaving, self._leaving = self._leaving, []
        if leaving:
            self._queue.put(leaving)

    # ---- everything below runs in the thread ----

    def _run(self) -> None:
        while self._running or self._decisions or self._tasks:
            self._collect(0.0 if self._tasks else self._decisions.pause_s(time.monotonic()))
            try:
                self._work()
            except Exception as error:  # noqa: BLE001 - a fault of ours must not end the thread and hang every caller
                _log.exception("ledger writer failed")
                self._connection.drop()
                self._fail(self._in_hand, LedgerUnavailableError(f"the ledger's writer failed: {error!r}"))
        self._connection.close()

    def _collect(self, wait_s: float | None) -> None:
        """Take over what is queued; wait for something if there is nothing to do before (None: nothing at all)."""
        wait = wait_s is None or wait_s > 0
        while True:
            try:
                arrived = self._queue.get(block=wait, timeout=wait_s)
            except queue.Empty:
                return
            wait = False
            for item in arrived:
                if isinstance(item, Decision):
                    self._decisions.add(item)
                elif isinstance(item, _Task):
                    self._tasks.append(item)
                else:
                    self._running = False

    def _work(self) -> None:
        """One round: one task if one waits, then one batch of the decisions, then one that has to travel alone."""
        if self._tasks:
            task = self._tasks.popleft()
            self._in_hand = (task,)
            self._carry_out(task)
        chosen = self._decisions.take_batch(time.monotonic())
        if chosen:
            self._in_hand = chosen
            self._send(self._new_batch(chosen, is_open=True))
        alone = self._decisions.take_alone(time.monotonic())
        if alone is not None:
            self._in_hand = (alone,)
            self._send(self._new_batch([alone]), wait_briefly=True)
        self._in_hand = ()

    def _new_batch(self, decisions: list[Decision], *, is_open: bool = False) -> Batch:
        self._batch_number += 1
        batch = Batch(f"{self._node}:{self._batch_number}", is_open=is_open)
        self._join(batch, decisions)
        return batch

    def _join(self, batch: Batch, decisions: list[Decision]) -> None:
        """Add decisions to a batch; those with values that no database takes are refused at once."""
        for decision in decisions:
            try:
                decision.rows = self._rows_of(decision.content, batch.name)
            except Exception as error:  # noqa: BLE001 - whatever it is, it came from this decision's values
                self._fail([decision], _refusal(decision, error))
            else:
                batch.decisions.append(decision)

    def _close(self, batch: Batch) -> None:
        """Let those join that were decided while the transaction began: they needn't wait for the next one."""
        batch.is_open = False
        self._collect(0.0)
        joining = self._decisions.take_batch(time.monotonic(), beside=batch.decisions)
        if joining:
            self._in_hand = [*batch.decisions, *joining]
            self._join(batch, joining)

    def _rows_of(self, content: NewSaga | Write, batch_name: str) -> DecisionRows:
        before = None
        if isinstance(content, Write) and self._dialect.is_cheap_by_column:
            before = self._last.before(content)
        return encode(content, batch_name, self._dialect.instant, before=before)

    def _send(self, batch: Batch, *, wait_briefly: bool = False) -> None:
        """Send a batch until it is answered, split, held up, or given up."""
        while batch.decisions:
            try:
                verdicts = self._transact(lambda connection: self._apply(connection, batch), wait_briefly=wait_briefly)
            except LedgerUnavailableError as error:
                self._pause(error)
                batch.decisions = self._still_patient(batch.decisions, error)
            except LedgerError as error:
                self._fail(batch.decisions, error)
                return
            except LockWaitError as error:
                self._split(batch, error, self._send_alone, wait_briefly=True)
                return
            except Exception as error:  # noqa: BLE001 - whatever it is, it came from this batch's data
                self._split(batch, error, self._refuse, wait_briefly=wait_briefly)
                return
            else:
                self._answer(batch, verdicts)
                return

    def _apply(self, connection: Connection, batch: Batch) -> list[Verdict]:
        transaction = Transaction(connection, self._statements, self._node)
        transaction.require_unfenced()
        if batch.is_open:
            self._close(batch)
        verdicts = transaction.apply(batch, self._last)
        for decision, verdict in zip(batch.decisions, verdicts, strict=True):
            if isinstance(verdict, Applied) and verdict.by_this:
                self._last.sent(decision.content, batch.name)
        return verdicts

    def _split(
        self, batch: Batch, error: Exception, end: Callable[[Decision, Exception], None], *, wait_briefly: bool
    ) -> None:
        """Send the halves of a batch that failed as a whole; `end` deals with a decision that fails alone."""
        if len(batch.decisions) == 1:
            end(batch.decisions[0], error)
            return
        middle = len(batch.decisions) // 2
        for half in (batch.decisions[:middle], batch.decisions[middle:]):
            self._send(Batch(batch.name, half), wait_briefly=wait_briefly)

    def _refuse(self, decision: Decision, error: Exception) -> None:
        self._fail([decision], _refusal(decision, error))

    def _send_alone(self, decision: Decision, error: Exception) -> None:
        """Have a decision that waited for a lock in vain wait by itself from now on."""
        self._decisions.isolate(decision)
        self._hold_up(decision, f"{error}")

    def _hold_up(self, decision: Decision, why: str) -> None:
        """Try a decision again later, unless it has waited too long."""
        error = LedgerUnavailableError(
            f"saga {decision.saga_id} can't be written: another session of the database keeps its rows ({why}); end "
            "that session's transaction; this call may be repeated"
        )
        if self._still_patient([decision], error):
            self._decisions.hold_up(decision, time.monotonic())

    def _answer(self, batch: Batch, verdicts: list[Verdict]) -> None:
        if self._batch_written is not None:
            self._batch_written(len(verdicts), self._took_s)
        self._statistics.batches += 1
        self._statistics.decisions += len(verdicts)
        self._statistics.largest_batch = max(self._statistics.largest_batch, len(verdicts))
        answers: list[tuple[asyncio.Future[Any], object]] = []
        for decision, verdict in zip(batch.decisions, verdicts, strict=True):
            if isinstance(verdict, LockedElsewhere):
                self._hold_up(decision, "the saga's row is locked")
            else:
                self._decisions.answered(decision)
                if isinstance(verdict, Applied) and verdict.by_this:
                    self._last.stored(decision.content)
                answers.append((decision.future, verdict))
        self._deliver(answers)

    def _carry_out(self, task: _Task) -> None:
        """Run a task until it is answered, refused or given up."""
        while True:
            try:
                result = self._transact(
                    lambda connection: self._guarded(connection, task), wait_briefly=task.needs_fence
                )
            except LedgerUnavailableError as error:
                self._pause(error)
                if not self._still_patient([task], error):
                    return
            except LedgerError as error:
                self._fail([task], error)
                return
            except LockWaitError as error:
                self._fail(
                    [task],
                    LedgerUnavailableError(
                        f"another session of the database keeps rows that this needs ({error}); end that session's "
                        "transaction; this call may be repeated"
                    ),
                )
                return
            except Exception as error:  # noqa: BLE001 - whatever it is, it came from this task's data
                self._fail(
                    [task], WriteRefusedError(f"the ledger refuses this data ({_words(error)}): don't repeat it")
                )
                return
            else:
                self._deliver([(task.future, result)])
                return

    def _guarded(self, connection: Connection, task: _Task) -> object:
        if task.needs_fence:
            Transaction(connection, self._statements, self._node).require_unfenced()
        return task.run(connection)

    def _transact(self, work: Callable[[Connection], T], *, wait_briefly: bool) -> T:
        self._require_lock()
        began_s = self._sent_time_s = time.monotonic()
        try:
            result = self._connection.transact(work, wait_briefly=wait_briefly)
        finally:
            self._sent_time_s = None
        self._took_s = time.monotonic() - began_s
        self._pause_s = _FIRST_PAUSE_S
        self._statistics.commits += 1
        return result

    def _pause(self, error: LedgerUnavailableError) -> None:
        """Wait a little before the next try, and give up everybody who has waited too long meanwhile."""
        _log.warning("ledger unavailable", error=str(error), pause_s=self._pause_s)
        self._statistics.sent_again += 1
        self._stopping.wait(self._pause_s)
        self._pause_s = min(self._pause_s * 2, _LONGEST_PAUSE_S)
        self._collect(0.0)
        self._fail(self._decisions.remove(self._is_impatient), error)
        self._tasks = deque(self._still_patient(self._tasks, error))

    def _still_patient(self, items: Iterable[Waiting], error: LedgerError) -> list[Waiting]:
        """Those that can wait longer; the others are told."""
        found = list(items)
        impatient = {item for item in found if self._is_impatient(item)}
        self._fail(impatient, error)
        return [item for item in found if item not in impatient]

    def _is_impatient(self, item: Decision | _Task) -> bool:
        """Nobody waits once the ledger is to be closed."""
        return self._stopping.is_set() or item.queued_time_s <= time.monotonic() - self._patience_s

    def _fail(self, items: Iterable[Decision | _Task], error: LedgerError) -> None:
        self._deliver([(item.future, error) for item in items])

    def _deliver(self, answers: list[tuple[asyncio.Future[Any], object]]) -> None:
        if answers and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(_set_all, answers)


Waiting = TypeVar("Waiting", Decision, _Task)


def _set_all(answers: list[tuple[asyncio.Future[Any], object]]) -> None:
    for future, answer in answers:
        if future.done():
            continue  # whoever waited for it was cancelled
        if isinstance(answer, BaseException):
            future.set_exception(answer)
        else:
            future.set_result(answer)


def _refusal(decision: Decision, error: Exception) -> WriteRefusedError:
    return WriteRefusedError(
        f"saga {decision.saga_id}: the ledger refuses this write's data ({_words(error)}); repeating it is useless"
    )


def _words(error: Exception) -> str:
    """What the database said, without the statement and its values."""
    return str(error) if isinstance(error, DataRefusedError) else repr(error)
