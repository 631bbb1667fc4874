"""Puts one coordinator process together, runs it until it is told to stop, and takes it apart in order.

Start: read and check the settings, take the port, open the ledger (older incarnations are fenced, their sagas
released), load the registry, answer requests, sweep. Stop: health says NOT_SERVING, no new request is taken, those
under way are answered, calls to participants end or are handed over within the grace, the ledger is given back.
"""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import structlog

from amends_coordinator.calls.reflection import Reflection
from amends_coordinator.calls.secrets import Secrets
from amends_coordinator.calls.unary import UnaryParticipants
from amends_coordinator.core.ids import NodeId
from amends_coordinator.declared_participants import DeclaredParticipants
from amends_coordinator.definitions.catalog import Catalog
from amends_coordinator.engine.engine import Engine
from amends_coordinator.engine.registry import Registry
from amends_coordinator.engine.settings import EngineSettings
from amends_coordinator.engine.static_participants import StaticParticipants
from amends_coordinator.grpc_api.server import Api, ApiSettings, CannotListenError, target
from amends_coordinator.ledger.factory import MEMORY_URL, open_ledger, place_of, sqlite_file
from amends_coordinator.ledger.migrate import upgrade
from amends_coordinator.participants_file import read_participants
from amends_coordinator.ports.ledger import LedgerError, LedgerLockedError, LedgerUnavailableError, NodeFencedError
from amends_coordinator.settings import Settings, SettingsError
from amends_coordinator.system import SystemClock, SystemIds
from amends_coordinator.telemetry import happenings, names
from amends_coordinator.telemetry.logs import LogTelemetry, configure
from amends_coordinator.telemetry.telling import TellingTelemetry

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import TypeAlias

    from amends_coordinator.ports.ledger import Ledger

    Tell: TypeAlias = Callable[[happenings.Happening], None]

__all__ = ["Coordinator", "LedgerError", "Settings", "SettingsError", "happenings", "main", "migrate", "run", "serve"]

_log: Any = structlog.get_logger("amends.node")  # structlog's loggers are proxies that it declares as Any itself
_MICROS = 1_000_000

NEXT_TRY_S = 1.0
"""How long an incarnation that follows one that was shut out waits before it asks for the ledger again."""


class Coordinator:
    """One incarnation, wired. To be made on the running event loop; `start`, then `run`, then `stop`."""

    def __init__(self, settings: Settings, *, ledger: Ledger, tell: Tell | None = None) -> None:
        ids, clock = SystemIds(), SystemClock()
        # Cut, because the ledger keeps 64 characters of both parts together.
        self.node = NodeId(f"{(settings.node_name or socket.gethostname())[:51]}-{ids.token()[:12]}")
        self._settings = settings
        self._ledger = ledger
        self._ledger_is_open = False
        self._telemetry = LogTelemetry() if tell is None else TellingTelemetry(tell, clock=clock)
        catalog = Catalog(ledger_name=settings.ledger_name)
        self._registry = Registry(
            ledger=ledger,
            clock=clock,
            telemetry=self._telemetry,
            lease_us=round(settings.participant_lease_s * _MICROS),
        )
        secrets = Secrets(settings.secrets_dir)
        self._participants = UnaryParticipants(
            directory=self._registry,
            clock=clock,
            ledger_name=settings.ledger_name,
            payload_limit_bytes=settings.payload_limit_bytes,
            connect_gate_s=settings.connect_gate_s,
            secrets=secrets,
        )
        statics = StaticParticipants(
            registry=self._registry,
            describing=Reflection(secrets=secrets, payload_limit_bytes=settings.payload_limit_bytes),
        )
        self._declared = DeclaredParticipants(
            read_participants(settings.participants_file, payload_limit_bytes=settings.payload_limit_bytes),
            statics=statics,
            registry=self._registry,
        )
        self._engine = Engine(
            ledger=ledger,
            participants=self._participants,
            directory=self._registry,
            clock=clock,
            ids=ids,
            telemetry=self._telemetry,
            catalog=catalog,
            settings=_engine_settings(settings),
            node=self.node,
        )
        self._api = Api(
            _api_settings(settings),
            driving=self._engine,
            operating=self._engine.verbs,
            ledger=ledger,
            registry=self._registry,
            statics=statics,
            catalog=catalog,
            clock=clock,
        )

    async def start(self) -> int:
        """Take the port and the ledger, and answer requests; the port's number.

        Raises:
            CannotListenError, LedgerError: it can't; `stop` ends what was begun.
        """
        port = self._api.bind()
        await self._engine.open()
        self._ledger_is_open = True
        await self._registry.load()
        await self._declared.put_known()
        await self._api.start()
        _log.info(names.NODE_STARTED, **{names.NODE: self.node, names.PORT: port})
        return port

    async def run(self) -> None:
        """Sweep, keep health true and add declared participants, until cancelled; raises what can't be gone on with."""
        beside = (
            asyncio.create_task(self._watch_health(), name="watch health"),
            asyncio.create_task(self._declared.run(), name="add declared participants"),
        )
        try:
            await self._engine.run()
        finally:
            for task in beside:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task

    async def stop(self, grace_s: float) -> None:
        """Finish or hand over within `grace_s` seconds, and give the ledger back. Safe after a `start` that failed."""
        await asyncio.gather(self._api.stop(grace_s), self._engine.stop(grace_s))
        await self._participants.close()
        if self._ledger_is_open:
            self._ledger_is_open = False
            try:
                await self._ledger.close()
            except LedgerError as error:  # its sagas are found by the next incarnation all the same
                _log.warning(names.LEDGER_UNAVAILABLE, **{names.ERROR: str(error)})
            _log.info(names.NODE_STOPPED, **{names.NODE: self.node})

    async def _watch_health(self) -> None:
        """Say NOT_SERVING while the sweeper can't get through to the ledger, or hasn't for a whole lease."""
        loop = asyncio.get_running_loop()
        seen_pass, seen_failures, passed_s = self._engine.last_pass_time, 0, loop.time()
        while True:
            await asyncio.sleep(self._settings.sweep_interval_s)
            if self._engine.last_pass_time != seen_pass:
                seen_pass, passed_s = self._engine.last_pass_time, loop.time()
                self._telemetry.ledger_available()
                await self._api.health.tell(serving=True)
            elif self._telemetry.failed_passes != seen_failures or loop.time() - passed_s > self._settings.lease_ttl_s:
                seen_failures = self._telemetry.failed_passes
                await self._api.health.tell(serving=False)


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
    until = stopping or asyncio.Event()
    was_shut_out = False
    while not (was_shut_out and until.is_set()):
        try:
            await _serve_once(settings, ready=ready, stopping=until, tell=tell)
        except _ShutOutError as shut_out:
            settings, ready, was_shut_out = settings.model_copy(update={"port": shut_out.port}), None, True
            _log.warning(names.NODE_FENCED, **{names.ERROR: str(shut_out.__cause__)})
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
    settings: Settings, *, ready: Callable[[str], None] | None, stopping: asyncio.Event, tell: Tell | None
) -> None:
    """Run one incarnation."""
    ledger = open_ledger(settings.ledger_url, lease_s=settings.lease_ttl_s)
    coordinator = Coordinator(settings, ledger=ledger, tell=tell)
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
    _calm_the_garbage_collector()
    try:
        asyncio.run(_until_signal(settings, ready=ready or _announce, tell=tell))
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


def _engine_settings(settings: Settings) -> EngineSettings:
    return EngineSettings(
        sweep_interval_s=settings.sweep_interval_s,
        heartbeat_interval_s=settings.heartbeat_interval_s,
        lease_ttl_s=settings.lease_ttl_s,
        max_running_sagas=settings.max_running_sagas,
        max_watchers=settings.max_watchers,
        payload_limit_bytes=settings.payload_limit_bytes,
        abort_grace_s=settings.abort_grace_s,
        retention_s=settings.retention_s,
    )


def _api_settings(settings: Settings) -> ApiSettings:
    return ApiSettings(
        host=settings.host,
        port=settings.port,
        ledger_name=settings.ledger_name,
        payload_limit_bytes=settings.payload_limit_bytes,
    )
