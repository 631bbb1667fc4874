"""One process per ledger: a lock that the operating system takes back when its holder dies, however it dies."""

from __future__ import annotations

import contextlib
import fcntl
import os
from typing import TYPE_CHECKING

from amends_coordinator.ports.ledger import LedgerLockedError, LedgerUnavailableError

if TYPE_CHECKING:
    from pathlib import Path


class FileLock:
    """An exclusive `flock` on a file. The file stays; only the lock on it means anything."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Take the lock, or say at once who has it.

        Raises:
            LedgerLockedError: another process holds it.
            LedgerUnavailableError: the file can't be made.
        """
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise LedgerUnavailableError(
                f"the lock file {self._path} can't be opened ({error.strerror}): make its folder exist and be writable"
            ) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
            os.close(descriptor)
            raise LedgerLockedError(
                f"the ledger is in use: process {holder or 'unknown'} holds {self._path}. "
                "Stop that process, or give this one another ledger"
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        self._descriptor = descriptor

    def require_held(self) -> None:
        """The operating system takes it from no process that lives."""

    def release(self) -> None:
        """Give the lock back; nothing happens if it isn't held."""
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            with contextlib.suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_UN)  # a forked child may hold a copy of the descriptor
                os.close(descriptor)
