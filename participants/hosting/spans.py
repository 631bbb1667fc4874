"""Exports a participant's spans where the environment says so, as any team sets up OpenTelemetry in its own process."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
EXPORT_TIMEOUT_S = 2
EXPORT_INTERVAL_MS = 200


@contextmanager
def exported_spans(participant: str) -> Generator[None]:
    """While the block runs, spans go to the OTLP endpoint in the environment; without one nothing is loaded."""
    if not os.environ.get(ENDPOINT):
        yield
        return
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider(resource=Resource.create({"service.name": participant}), shutdown_on_exit=False)
    exporter = OTLPSpanExporter(timeout=EXPORT_TIMEOUT_S)
    provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=EXPORT_INTERVAL_MS))
    trace.set_tracer_provider(provider)
    try:
        yield
    finally:
        provider.shutdown()
