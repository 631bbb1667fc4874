"""Threads that read, each with a connection: a slow question holds up neither the event loop nor the writer."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from amends_coordinator.ledger.connection import unavailable
from amends_coordinator.ports.ledger import LedgerUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Connection

    from amends_coordinator.ledger.dialect import SqlDialect

T = TypeVar("T")

FOREVER_S = 1e6
"""Stands for no bound, where a timer wants a number."""


class ReadPool:
    """Threads that read, each with a connection."""

    def __init__(self, dialect: SqlDialect, *, connections: int) -> None:
        self._dialect = dialect
        self._engine = dialect.reader_engine(connections)
        self._bound_s = min(dialect.answer_bound_s, FOREVER_S)
        self._threads = ThreadPoolExecutor(max_workers=connections, thread_name_prefix="ledger-read")

    async def run(self, question: Callable[[Connection], T]) -> T:
        """Answer the question in one transaction.

        Raises:
            LedgerUnavailableError: the database failed; asking again is safe.
        """
        loop, line = asyncio.get_running_loop(), _Line()
        patience = loop.call_later(self._bound_s, line.cut)
        try:
            return await loop.run_in_executor(self._threads, self._ask, question, line)
        except DBAPIError as error:
            raise unavailable(self._dialect, error) from error
        except SQLAlchemyError as error:
            raise LedgerUnavailableError(f"the ledger at {self._dialect.place} can't be read: {error}") from error
        finally:
            patience.cancel()

    def close(self) -> None:
        """End the threads once they have answered, and close the connections."""
        self._threads.shutdown(wait=True)
        self._engine.dispose()

    def _ask(self, question: Callable[[Connection], T], line: _Line) -> T:
        try:
            return self._ask_once(question, line)
        except DBAPIError as error:
            if line.was_cut or not error.connection_invalidated:
                raise
        return self._ask_once(question, line)  # the connection had ended while it rested; all that rested are gone now

    def _ask_once(self, question: Callable[[Connection], T], line: _Line) -> T:
        with self._engine.connect() as connection:
            line.ends = self._dialect.cutter(connection)
            try:
                self._dialect.begin_read(connection)
                return question(connection)
            finally:
                line.ends = None


class _Line:
    """The connection that answers a question at the moment, to be cut from the event loop."""

    def __init__(self) -> None:
        self.ends: Callable[[], None] | None = None
        self.was_cut = False

    def cut(self) -> None:
        """End it, if there is one."""
        self.was_cut = True
        if (ends := self.ends) is not None:
            ends()
