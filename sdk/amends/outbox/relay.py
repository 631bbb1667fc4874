"""`Relay`: delivers what was published, beside a participant or in a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import threading
import uuid
from typing import TYPE_CHECKING

from amends.outbox import statements, wakes
from amends.outbox.database import Database
from amends.outbox.errors import OutboxUseError
from amends.outbox.options import RelayOptions, away_delay_s, worth_a_warning
from amends.outbox.turn import Turn, TurnOverError
from amends.outbox.writing import explained

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from amends.outbox.database import Sessions
    from amends.outbox.publisher import Publisher

log = logging.getLogger("amends.outbox")

DEFAULTS = RelayOptions()


class Relay:
    """Delivers the events of one outbox: each at least once, those of one key in order.

        async with Relay(sessions, publisher):          # on the event loop, beside a server
            await server.serve()

        with Relay(sessions, publisher):                # in a thread of its own, beside a sync server
            server.wait_for_termination()

    Any number of processes may run one for the same outbox: they take turns, and while one of them is at it the others
    only look from time to time. Leaving the block lets what is on its way end, within `publish_timeout`; what is left
    stays in the outbox, for the next relay. While the database or the broker is away it waits, and says so in the log.

    Args:
        sessions: of the participant's database: an `async_sessionmaker`, or a `sessionmaker`, which is used in threads.
        publisher: where to. It stays the caller's, to be closed after the relay.
        options: limits, where the defaults don't suit.

    Raises:
        OutboxUseError: the database is none that an outbox can be in.
    """

    def __init__(self, sessions: Sessions, publisher: Publisher, options: RelayOptions = DEFAULTS) -> None:
        self._database = Database(sessions)
        self._publisher, self._options = publisher, options
        self._holder = str(uuid.uuid4())
        self._loop: asyncio.AbstractEventLoop | None = None
        self._signal = asyncio.Event()
        self._delivered: set[int] = set()
        self._turn: Turn | None = None
        self._stopping = False
        self._task: asyncio.Task[None] | None = None
        self._thread: threading.Thread | None = None

    async def run(self) -> None:
        """Deliver until `stop` is called; for a process that does nothing else. At most once.

        Raises:
            OutboxUseError: this relay runs already, or has run.
        """
        if self._loop is not None:
            raise OutboxUseError("this relay runs already, or has run: make another")
        self._loop = asyncio.get_running_loop()
        wakes.listen(self, self._wake)
        try:
            await self._relay()
        finally:
            wakes.forget(self)
            self._database.close()

    def stop(self) -> None:
        """Have `run` end once what is on its way has ended. From any thread, as often as one likes."""
        self._stopping = True
        self._wake()

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self.run(), name="amends-outbox-relay")
        self._task.add_done_callback(_ended)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._task is not None
        self.stop()
        await asyncio.wait([self._task])

    def __enter__(self) -> Self:
        if not self._database.threaded:
            raise OutboxUseError(
                "a relay in a thread of its own needs a sessionmaker, because the connections of an async_sessionmaker "
                "belong to another event loop: use `async with`, or give it a sessionmaker"
            )
        self._thread = threading.Thread(target=self._run_in_thread, name="amends-outbox-relay", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._thread is not None
        self.stop()
        self._thread.join()

    def _run_in_thread(self) -> None:
        try:
            asyncio.run(self.run())
        except Exception:
            log.exception("the relay ended, and delivers nothing any more")

    async def _relay(self) -> None:
        fault_count = 0
        while not self._stopping:
            self._signal.clear()  # what is published from here on is not waited for
            try:
                await self._try_turn()
                fault_count = 0
                wait_s = self._options.poll_interval.total_seconds()
            except Exception as problem:  # noqa: BLE001 - the database is away: it will be back
                fault_count += 1
                wait_s = away_delay_s(self._options, fault_count, random.random())
                level = logging.WARNING if worth_a_warning(fault_count) else logging.DEBUG
                log.log(level, "the outbox can't be read; the next try is in %.1f s: %s", wait_s, explained(problem))
            if not self._stopping:  # a turn that was stopped has taken notice of the signal
                await self._pause(wait_s)

    async def _try_turn(self) -> None:
        """Deliver what there is, if there is anything and no other relay is at it."""
        if not await self._database.run(lambda session: statements.is_wanted(session, self._holder)):
            return
        asked, lease_s = asyncio.get_running_loop().time(), self._options.lease.total_seconds()
        if not await self._database.run(lambda session: statements.take_turn(session, self._holder, lease_s)):
            return
        self._turn = turn = Turn(
            holder=self._holder,
            lease_end=asked + lease_s,
            database=self._database,
            publisher=self._publisher,
            options=self._options,
            signal=self._signal,
            delivered=self._delivered,
        )
        turn.stopping = self._stopping
        try:
            await turn.work()
        except TurnOverError:
            log.warning("another relay has taken over, because this one's lease was over before it was renewed")
        finally:
            self._turn = None
            # Also where it was cancelled; where the database is away the lease ends by itself.
            with contextlib.suppress(Exception):
                await self._database.run(lambda session: statements.end_turn(session, self._holder))

    async def _pause(self, wait_s: float) -> None:
        try:
            async with asyncio.timeout(wait_s):
                await self._signal.wait()
        except TimeoutError:
            return

    def _wake(self) -> None:
        """Look at once whether there is something to do. From any thread."""
        loop = self._loop
        if loop is None or loop.is_closed():
            return
        try:
            loop.call_soon_threadsafe(self._look)
        except RuntimeError:
            return  # the loop was closed in this moment

    def _look(self) -> None:
        if self._turn is not None:
            self._turn.stopping = self._stopping
        self._signal.set()


def _ended(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        log.error("the relay ended, and delivers nothing any more: %s", task.exception(), exc_info=task.exception())
