"""Runs coordinators: one incarnation after the other, as a process until it is told to stop; and what a rehearsal of
sagas puts one together from.

All that the SDK's command line and `amends.testing` know of the coordinator, beside the checks of definitions.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import structlog
import uvloop

from amends_coordinator.core.answer import Answer
from amends_coordinator.core.ids import Instant
from amends_coordinator.core.states import Outcome
from amends_coordinator.grpc_api.server import CannotListenError, target
from amends_coordinator.ledger.factory import MEMORY_URL, open_ledger, place_of, sqlite_file
from amends_coordinator.ledger.memory import MemoryStore
from amends_coordinator.ledger.migrate import upgrade
from amends_coordinator.ledger.watched import LedgerWrite
from amends_coordinator.node import Coordinator
from amends_coordinator.ports.ledger import LedgerError, LedgerLockedError, LedgerUnavailableError, NodeFencedError
from amends_coordinator.ports.participants import CallRequest
from amends_coordinator.rehearsal import (
    RehearsedClock,
    RehearsedCoordinator,
    RehearsedIds,
    RehearsedParticipant,
    Surrounding,
)
from amends_coordinator.settings import Settings, SettingsError, misspelt
from amends_coordinator.system import SystemClock
from amends_coordinator.telemetry import happenings, names
from amends_coordinator.telemetry.logs import configure

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from amends_coordinator.node import Tell
    from amends_coordinator.telemetry.exports import Exports

__all__ = [
    "Answer",
    "CallRequest",
    "Coordinator",
    "Instant",
    "LedgerError",
    "LedgerWrite",
    "MemoryStore",
    "Outcome",
    "RehearsedClock",
    "RehearsedCoordinator",
    "RehearsedIds",
    "RehearsedParticipant",
    "Settings",
    "SettingsError",
    "Surrounding",
    "happenings",
    "main",
    "migrate",
    "run",
    "serve",
]

_log: Any = structlog.get_logger("amends.node")  # structlog's loggers are proxies that it declares as Any itself

NEXT_TRY_S = 1.0
"""How long an incarnation that follows one that was shut out waits before it asks for the ledger again."""


async def serve(
    settings: Settings,
    *,
    ready: Callable[[str], None] | None = None,
    stopping: asyncio.Event | None = None,
    tell: Tell | None = None,
) -> None:
    """Run one coordinator until `stopping` is set (or the task is cancelled). An incarnation that is shut out of the
    ledger drops everything it holds, and the next one begins on the same port, as soon as it gets the ledger.

    Args:
        settings: everything that can be set.
        ready: is told the address, "127.0.0.1:7070", once requests are answered.
        stopping: ends it; without one only a cancellation does.
        tell: hears what happens to sagas and participants, on the event loop; it must not raise.

    Raises:
        SettingsError, CannotListenError, LedgerError: it could not start, or can't go on; each says what to do.
    """
    settings.check()
    await asyncio.to_thread(_make_if_missing, settings.ledger_url)
    exports = await asyncio.to_thread(_open_exports, settings)
    try:
        await _serve_incarnations(settings, ready=ready, until=stopping or asyncio.Event(), tell=tell, exports=exports)
    finally:
        if exports is not None:
            await asyncio.to_thread(exports.close)


async def _serve_incarnations(
    settings: Settings,
    *,
    ready: Callable[[str], None] | None,
    until: asyncio.Event,
    tell: Tell | None,
    exports: Exports | None,
) -> None:
    """Run one incarnation after the other, until `until` is set."""
    was_shut_out = False
    while not (was_shut_out and until.is_set()):
        try:
            await _serve_once(settings, ready=ready, stopping=until, tell=tell, exports=exports)
        except _ShutOutError as shut_out:
            settings, ready, was_shut_out = settings.model_copy(update={"port": shut_out.port}), None, True
            _log.warning(names.NODE_FENCED, **{names.ERROR: str(shut_out.__cause__)})
            if exports is not None:
                exports.metrics.node_fenced()
        except (LedgerLockedError, LedgerUnavailableError, NodeFencedError) as error:
            if not was_shut_out:
                raise
            _log.warning(names.LEDGER_UNAVAILABLE, **{names.ERROR: str(error)})
            with suppress(TimeoutError):
                await asyncio.wait_for(until.wait(), NEXT_TRY_S)
        else:
            return


class _ShutOutError(Exception):
    """An incarnation that was answering on `port` was shut out of the ledger."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self.port = port


async def _serve_once(
    settings: Settings,
    *,
    ready: Callable[[str], None] | None,
    stopping: asyncio.Event,
    tell: Tell | None,
    exports: Exports | None,
) -> None:
    """Run one incarnation."""
    metrics = None if exports is None else exports.metrics
    ledger = open_ledger(
        settings.ledger_url,
        lease_s=settings.lease_ttl_s,
        batch_written=None if metrics is None else metrics.batch_written,
        letters_opened=None if metrics is None else metrics.letters_opened,
    )
    coordinator = Coordinator(settings, ledger=ledger, tell=tell, exports=exports)
    grace_s = settings.stop_grace_s
    try:
        port = await coordinator.start()
        if ready is not None:
            ready(target(settings.host, port))
        try:
            await _first_of(coordinator.run(), stopping.wait())
        except NodeFencedError as error:
            grace_s = 0.0  # what it holds is not its own any more
            raise _ShutOutError(port) from error
    finally:
        await coordinator.stop(grace_s)


async def _first_of(running: Coroutine[Any, Any, None], stopping: Coroutine[Any, Any, Any]) -> None:
    """Return when either ends, and end the other; what `running` raises is raised."""
    run_task = asyncio.create_task(running, name="run coordinator")
    stop_task = asyncio.create_task(stopping, name="wait for the end")
    try:
        await asyncio.wait((run_task, stop_task), return_when=asyncio.FIRST_COMPLETED)
        if run_task.done():
            run_task.result()
    finally:
        for task in (run_task, stop_task):
            task.cancel()
        await asyncio.gather(run_task, stop_task, return_exceptions=True)


def run(settings: Settings, *, ready: Callable[[str], None] | None = None, tell: Tell | None = None) -> int:
    """Run one coordinator until SIGTERM or SIGINT; the exit code.

    Args:
        settings: everything that can be set.
        ready: is told the address once requests are answered; None prints `listening on HOST:PORT`.
        tell: hears what happens to sagas and participants, as for `serve`.
    """
    configure(level=settings.log_level, form=settings.log_format)
    for variable, meant in misspelt(os.environ).items():
        _log.warning(names.SETTING_MISSPELT, **{names.VARIABLE: variable, names.SETTING: meant})
    _calm_the_garbage_collector()
    try:
        uvloop.run(_until_signal(settings, ready=ready or _announce, tell=tell))
    except (SettingsError, CannotListenError, LedgerError) as error:
        _complain(error)
        return 1
    except Exception as error:  # noqa: BLE001  # the process's edge: what can't be gone on with ends it, with its traceback
        _log.critical(names.NODE_FAILED, exc_info=error)
        return 1
    return 0


def _calm_the_garbage_collector() -> None:
    """Sagas in memory are values without cycles; looking through all of them every few milliseconds cost a tenth of the
    processor time of a saga (measured with `make bench`).
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)


def main(*, ready: Callable[[str], None] | None = None, tell: Tell | None = None, **overrides: object) -> int:
    """Run with the settings of the environment and `overrides` above them (None: not overridden); the exit code."""
    try:
        settings = Settings.load(**overrides)
    except SettingsError as error:
        _complain(error)
        return 1
    return run(settings, ready=ready, tell=tell)


def migrate(url: str | None = None) -> str:
    """Bring a ledger's tables to the schema of this release, making it where there is none; safe to repeat.

    Args:
        url: where the ledger is; None: where the environment says.

    Returns:
        A sentence about what was done.

    Raises:
        SettingsError, LedgerError: it can't be done; the message says why and what to do.
    """
    chosen = Settings.load(ledger_url=url).ledger_url
    if chosen == MEMORY_URL:
        return "a ledger in memory has no schema; there is nothing to do"
    upgrade(chosen)
    return f"the ledger {place_of(chosen)} has the schema of this release"


async def _until_signal(settings: Settings, *, ready: Callable[[str], None], tell: Tell | None) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    await serve(settings, ready=ready, stopping=stopping, tell=tell)


def _open_exports(settings: Settings) -> Exports | None:
    """The exporters, where something is to be exported; they are loaded only then."""
    if not settings.otlp_endpoint and not settings.prometheus_port:
        return None
    from amends_coordinator.telemetry.exports import ExportError, Exports, ExportSettings

    where = ExportSettings(
        otlp_endpoint=settings.otlp_endpoint,
        prometheus_port=settings.prometheus_port,
        prometheus_host=settings.host.strip("[]"),
        ratio=settings.trace_ratio,
        slow_us=round(settings.trace_slow_s * 1e6),
        interval_s=settings.metrics_interval_s,
    )
    try:
        return Exports(where, clock=SystemClock(), service_instance=settings.node_name or socket.gethostname())
    except ExportError as error:
        raise SettingsError([str(error)]) from error


def _make_if_missing(url: str) -> None:
    """Make a SQLite ledger that doesn't exist yet; a database that exists is never changed without being asked to."""
    file = sqlite_file(url)
    if file is None:
        return
    try:
        missing = not file.exists() or not file.stat().st_size
    except OSError:
        return  # opening it says what is wrong
    if missing:
        upgrade(url)


def _announce(address: str) -> None:
    sys.stdout.write(f"listening on {address}\n")
    sys.stdout.flush()


def _complain(error: Exception) -> None:
    sys.stderr.write("".join(f"amends: {line}\n" for line in str(error).splitlines()))
