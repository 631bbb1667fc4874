"""One incarnation of a coordinator: everything that it consists of, wired, started, and taken apart in order.

Start: take the port, open the ledger (older incarnations are fenced, their sagas released), load the registry, answer
requests. Stop: health says NOT_SERVING, no new request is taken, those under way are answered, calls to participants
end or are handed over within the grace, the ledger is given back.
"""

from __future__ import annotations

import asyncio
import socket
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
from amends_coordinator.grpc_api.server import Api, ApiSettings
from amends_coordinator.participants_file import read_participants
from amends_coordinator.ports.ledger import LedgerError
from amends_coordinator.system import SystemClock, SystemIds
from amends_coordinator.telemetry import names
from amends_coordinator.telemetry.catching_up import emit_again
from amends_coordinator.telemetry.logs import LogTelemetry
from amends_coordinator.telemetry.telling import TellingTelemetry

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from amends_coordinator.ports.ledger import Ledger
    from amends_coordinator.ports.telemetry import Telemetry
    from amends_coordinator.settings import Settings
    from amends_coordinator.telemetry.exports import Exports
    from amends_coordinator.telemetry.happenings import Happening
    from amends_coordinator.telemetry.tracing import SagaTraces

    Tell: TypeAlias = Callable[[Happening], None]

_log: Any = structlog.get_logger("amends.node")  # structlog's loggers are proxies that it declares as Any itself
_MICROS = 1_000_000


class Coordinator:
    """One incarnation, wired. To be made on the running event loop; `start`, then `run`, then `stop`."""

    def __init__(
        self, settings: Settings, *, ledger: Ledger, tell: Tell | None = None, exports: Exports | None = None
    ) -> None:
        ids, clock = SystemIds(), SystemClock()
        # Cut, because the ledger keeps 64 characters of both parts together.
        self.node = NodeId(f"{(settings.node_name or socket.gethostname())[:51]}-{ids.token()[:12]}")
        self._settings = settings
        self._clock = clock
        self._ledger = ledger
        self._ledger_is_open = False
        self._exports = exports
        self._told = LogTelemetry() if tell is None else TellingTelemetry(tell, clock=clock)
        telemetry: Telemetry = self._told if exports is None else exports.telemetry(self._told)
        catalog = Catalog(ledger_name=settings.ledger_name)
        self._registry = Registry(
            ledger=ledger,
            clock=clock,
            telemetry=telemetry,
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
            telemetry=telemetry,
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
            telemetry=telemetry,
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
            *self._begin_exports(),
        )
        for task in beside:
            task.add_done_callback(_tell_of_fault)
        try:
            await self._engine.run()
        finally:
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)

    async def stop(self, grace_s: float) -> None:
        """Finish or hand over within `grace_s` seconds, and give the ledger back. Safe after a `start` that failed."""
        if self._ledger_is_open:
            _log.info(names.NODE_STOPPING, **{names.NODE: self.node})
        await asyncio.gather(self._api.stop(grace_s), self._engine.stop(grace_s))
        await self._participants.close()
        if self._ledger_is_open:
            self._ledger_is_open = False
            try:
                await self._ledger.close()
            except LedgerError as error:  # its sagas are found by the next incarnation all the same
                _log.warning(names.LEDGER_UNAVAILABLE, **{names.ERROR: str(error)})
            _log.info(names.NODE_STOPPED, **{names.NODE: self.node})

    def _begin_exports(self) -> list[asyncio.Task[None]]:
        if self._exports is None:
            return []
        tasks = [asyncio.create_task(self._measure(self._exports), name="measure")]
        if self._exports.traces is not None:
            tasks.append(asyncio.create_task(self._emit_again(self._exports.traces), name="emit again"))
        return tasks

    async def _emit_again(self, traces: SagaTraces) -> None:
        """Emit what a killed incarnation may have kept."""
        with suppress(LedgerError):
            await emit_again(self._ledger, traces, node=self.node)

    async def _measure(self, exports: Exports) -> None:
        """Ask the ledger now and then what stands in it."""
        exports.gauges.watch(last_pass=lambda: self._engine.last_pass_time, loads=self._participants.loads)
        while True:
            with suppress(LedgerError):  # told by the sweeper, which can't reach it either
                exports.gauges.measured(await self._ledger.measure(self._clock.now()))
            await asyncio.sleep(self._settings.metrics_interval_s)

    async def _watch_health(self) -> None:
        """Say NOT_SERVING while the sweeper can't get through to the ledger, or made no pass for a whole lease."""
        loop = asyncio.get_running_loop()
        seen_pass, seen_failures, passed_s = self._engine.last_pass_time, 0, loop.time()
        while True:
            await asyncio.sleep(self._settings.sweep_interval_s)
            if self._engine.last_pass_time != seen_pass:
                seen_pass, passed_s = self._engine.last_pass_time, loop.time()
                self._told.ledger_available()
                await self._api.health.tell()
            elif self._told.failed_passes != seen_failures:
                seen_failures, passed_s = self._told.failed_passes, loop.time()
                await self._api.health.tell(ledger=False)
            elif loop.time() - passed_s > self._settings.lease_ttl_s:
                await self._api.health.tell(ledger=False, sweeper=False)


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
        trace_ratio=settings.trace_ratio if settings.otlp_endpoint else None,
    )


def _api_settings(settings: Settings) -> ApiSettings:
    return ApiSettings(
        host=settings.host,
        port=settings.port,
        ledger_name=settings.ledger_name,
        payload_limit_bytes=settings.payload_limit_bytes,
    )


def _tell_of_fault(task: asyncio.Task[None]) -> None:
    """Sagas go on without what runs beside the engine, so a fault of it must not go unheard until the end."""
    error = None if task.cancelled() else task.exception()
    if error is not None:
        _log.error(names.TASK_FAILED, exc_info=error, **{names.TASK: task.get_name()})
