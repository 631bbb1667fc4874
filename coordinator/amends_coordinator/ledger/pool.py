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


class ReadPool:
    """Threads that read, each with a connection."""

    def __init__(self, dialect: SqlDialect, *, connections: int) -> None:
        self._dialect = dialect
        self._engine = dialect.reader_engine(connections)
        self._threads = ThreadPoolExecutor(max_workers=connections, thread_name_prefix="ledger-read")

    async def run(self, question: Callable[[Connection], T]) -> T:
        """Answer the question in one transaction.

        Raises:
            LedgerUnavailableError: the database failed; asking again is safe.
        """
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, self._ask, question)
        except DBAPIError as error:
            raise unavailable(self._dialect, error) from error
        except SQLAlchemyError as error:
            raise LedgerUnavailableError(f"the ledger at {self._dialect.place} can't be read: {error}") from error

    def close(self) -> None:
        """End the threads once they have answered, and close the connections."""
        self._threads.shutdown(wait=True)
        self._engine.dispose()

    def _ask(self, question: Callable[[Connection], T]) -> T:
        try:
            return self._ask_once(question)
        except DBAPIError as error:
            if not error.connection_invalidated:
                raise
        return self._ask_once(question)  # the connection had ended while it rested; all that rested are gone now

    def _ask_once(self, question: Callable[[Connection], T]) -> T:
        with self._engine.connect() as connection:
            self._dialect.begin_read(connection)
            return question(connection)
