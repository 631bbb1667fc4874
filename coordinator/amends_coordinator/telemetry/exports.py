"""Where metrics and spans go: OTLP over gRPC when an endpoint is set, and a page for Prometheus when a port is.

Both are OpenTelemetry's own exporters, with queues and threads of their own. What they can't get rid of is dropped: a
backend that hangs, refuses or is absent costs data and a line in the log, never a saga and never more than a moment of
a shutdown. Their modules take half a second to import, so nothing of them is loaded where neither is set.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import structlog
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from amends_coordinator.telemetry import names
from amends_coordinator.telemetry.exporting import ExportingTelemetry
from amends_coordinator.telemetry.gauges import Gauges
from amends_coordinator.telemetry.metrics import Metrics
from amends_coordinator.telemetry.tracing import SagaTraces

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import MetricReader
    from opentelemetry.sdk.trace import SpanProcessor

    from amends_coordinator.ports.clock import Clock
    from amends_coordinator.ports.telemetry import Telemetry

_log: Any = structlog.get_logger("amends.telemetry")  # structlog's loggers are untyped proxies

SERVICE_NAME = "amends-coordinator"
EXPORT_TIMEOUT_S = 2.0
SPAN_QUEUE = 65_536
"""Spans that wait for a slow backend; about 100 MB at most."""

SPAN_BATCH = 512
QUIET_S = 60.0
TEXT_LIMIT = 512
SHUTDOWN_BOUND_S = 0.6
"""How long a shutdown waits for what is still in the queues; with all else that ends there it stays below a second."""


class ExportError(Exception):
    """Metrics or traces can't be exported as the settings say. The message says what to change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportSettings:
    """Where to export to.

    `otlp_endpoint`: "http://host:4317" ("https" for TLS); "": nowhere. `prometheus_port`: 0: no page. `ratio`,
    `slow_us`: as of `SagaTraces`. `interval_s`: how often metrics are sent.
    """

    otlp_endpoint: str = ""
    prometheus_port: int = 0
    prometheus_host: str = "127.0.0.1"
    ratio: float = 1.0
    slow_us: int = 30_000_000
    interval_s: float = 10.0

    @property
    def is_on(self) -> bool:
        """Whether anything is exported."""
        return bool(self.otlp_endpoint or self.prometheus_port)


class Exports:
    """The exporters of one process, for all its incarnations.

    Raises:
        ExportError: the exporter isn't installed or refuses what is set, or the port for Prometheus is taken.
    """

    def __init__(self, settings: ExportSettings, *, clock: Clock, service_instance: str) -> None:
        _hear_complaints()
        resource = Resource.create({"service.name": SERVICE_NAME, "service.instance.id": service_instance})
        self.gauges = Gauges(clock)
        self._exporters: list[Any] = []  # Any: the two share no type, and their `shutdown` has none
        self._page = _Page(settings) if settings.prometheus_port else None
        try:
            readers = [*self._senders(settings), *([] if self._page is None else [self._page.reader])]
            self._meters = MeterProvider(readers, resource=resource, shutdown_on_exit=False)
            self._processor = self._span_processor(settings) if settings.otlp_endpoint else None
        except Exception as error:
            # OpenTelemetry's own settings are looked at there, each in its way.
            if self._page is not None:
                self._page.close()
            raise ExportError(
                f"OpenTelemetry refuses what AMENDS_OTLP_ENDPOINT ({settings.otlp_endpoint or 'not set'}) or its own "
                f"variables (OTEL_…) say: {error}; correct them, or leave AMENDS_OTLP_ENDPOINT out"
            ) from error
        self.metrics = Metrics(self._meters.get_meter("amends_coordinator"), self.gauges)
        self.traces = (
            None
            if self._processor is None
            else SagaTraces(self._processor, resource=resource, ratio=settings.ratio, slow_us=settings.slow_us)
        )

    def telemetry(self, told: Telemetry) -> Telemetry:
        """The telemetry port that tells `told`, and exports."""
        return ExportingTelemetry(told, metrics=self.metrics, traces=self.traces)

    def close(self) -> None:
        """Send what is left, as far as that is possible within a moment. What hangs then is left to its own thread."""
        closing = threading.Thread(target=self._close, name="telemetry-close", daemon=True)
        begin_s = time.monotonic()
        closing.start()
        if self._page is not None:
            self._page.close()
        closing.join(max(0.0, begin_s + SHUTDOWN_BOUND_S - time.monotonic()))
        if closing.is_alive():
            for exporter in self._exporters:
                exporter.shutdown()  # gRPC would wait at the process's end for a connection that is still being made

    def _span_processor(self, settings: ExportSettings) -> SpanProcessor:
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

        exporter = OTLPSpanExporter(settings.otlp_endpoint, timeout=EXPORT_TIMEOUT_S)
        self._exporters.append(exporter)
        return BatchSpanProcessor(
            exporter, max_queue_size=SPAN_QUEUE, max_export_batch_size=SPAN_BATCH, schedule_delay_millis=1_000
        )

    def _senders(self, settings: ExportSettings) -> list[MetricReader]:
        if not settings.otlp_endpoint:
            return []
        from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

        exporter = OTLPMetricExporter(settings.otlp_endpoint, timeout=EXPORT_TIMEOUT_S)
        self._exporters.append(exporter)
        return [PeriodicExportingMetricReader(exporter, export_interval_millis=settings.interval_s * 1e3)]

    def _close(self) -> None:
        if self._processor is not None:
            self._processor.shutdown()
        self._meters.shutdown(timeout_millis=SHUTDOWN_BOUND_S * 1e3)


class _Page:
    """The page for Prometheus, served by a thread of its own until it is closed.

    Raises:
        ExportError: as `Exports`.
    """

    def __init__(self, settings: ExportSettings) -> None:
        try:
            from opentelemetry.exporter.prometheus import PrometheusMetricReader
            from prometheus_client import start_http_server
        except ImportError:
            raise ExportError(
                "AMENDS_PROMETHEUS_PORT is set, but the exporter for Prometheus isn't installed: "
                "pip install 'amends[prometheus]', or leave the setting out"
            ) from None
        try:
            self._server, _ = start_http_server(settings.prometheus_port, addr=settings.prometheus_host)
        except OSError as error:
            raise ExportError(
                f"the page for Prometheus can't listen on {settings.prometheus_host}:{settings.prometheus_port} "
                f"({error.strerror}): choose another AMENDS_PROMETHEUS_PORT"
            ) from error
        self.reader: MetricReader = PrometheusMetricReader()

    def close(self) -> None:
        """Give the port back; takes half a second at most."""
        self._server.shutdown()
        self._server.server_close()


class Complaints(logging.Handler):
    """What the exporters complain of, in our log and once in a while: they would say it again at every attempt."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._quiet_until_s = 0.0

    def emit(self, record: logging.LogRecord) -> None:
        """Pass one complaint on, unless there was one a short while ago."""
        now_s = time.monotonic()
        if now_s >= self._quiet_until_s:
            self._quiet_until_s = now_s + QUIET_S
            _log.warning(names.EXPORT_FAILED, **{names.ERROR: without_headers(record.getMessage())[:TEXT_LIMIT]})


def without_headers(text: str) -> str:
    """The text without what the environment says in OpenTelemetry's headers: a key for the backend may be there, and an
    exporter that can't read it quotes it.
    """
    said = [value for name, value in os.environ.items() if name.startswith("OTEL_") and name.endswith("_HEADERS")]
    secrets = {part.strip() for value in said for part in (value, *value.split(","), *value.partition("=")[2:])}
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        text = text.replace(secret, "…")
    return text


def _hear_complaints() -> None:
    logger = logging.getLogger("opentelemetry")
    if not any(isinstance(handler, Complaints) for handler in logger.handlers):
        logger.addHandler(Complaints())
    logger.propagate = False
