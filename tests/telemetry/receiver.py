"""A real OTLP receiver: OpenTelemetry's own services for traces and metrics, on a free loopback port."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

import grpc
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2_grpc import (
    MetricsServiceServicer,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import (
    TraceServiceServicer,
)

from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping

    from opentelemetry.proto.common.v1.common_pb2 import KeyValue
    from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
    from opentelemetry.proto.trace.v1.trace_pb2 import Span as OtlpSpan

    Context = grpc.aio.ServicerContext[Any, Any]  # Any: nothing is read through it


SERVICES = "opentelemetry.proto.collector"
"""Its generated code has no types: what isn't a class is imported by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One span as it was received. `parent_id` is "" for a root; `service` is the resource's name."""

    service: str
    name: str
    trace_id: str
    span_id: str
    parent_id: str
    kind: int
    is_error: bool
    start_ns: int
    end_ns: int
    attributes: Mapping[str, str | int | bool]
    events: tuple[str, ...]

    def __getitem__(self, attribute: str) -> str | int | bool:
        """An attribute's value."""
        return self.attributes[attribute]


@dataclass(slots=True)
class Receiver(TraceServiceServicer, MetricsServiceServicer):
    """Takes what is exported. The last value of each series is kept, by name and labels."""

    address: str = ""
    spans: list[Span] = field(default_factory=list[Span])
    series: dict[tuple[str, frozenset[tuple[str, str]]], float] = field(
        default_factory=dict[tuple[str, frozenset[tuple[str, str]]], float]
    )
    metric_exports: int = 0
    _known: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])

    async def Export(self, request: Any, context: Context) -> Any:  # Any: two services have a method of this name
        """Take spans or metrics."""
        if isinstance(request, ExportTraceServiceRequest):
            self._take_spans(request)
            return ExportTraceServiceResponse()
        self._take_metrics(request)
        return ExportMetricsServiceResponse()

    async def trace(self, saga_id: str, *, span_count: int) -> list[Span]:
        """The spans of the trace that a saga is in, once there are so many; in the order of their beginnings."""
        await eventually(lambda: len(self._trace_of(saga_id)) >= span_count, what=f"{span_count} spans of {saga_id}")
        return sorted(self._trace_of(saga_id), key=lambda span: (span.start_ns, -span.end_ns))

    def value(self, name: str, **labels: str) -> float:
        """The last value of a series; of a histogram its count. 0 where there is none."""
        return self.series.get((name, frozenset(labels.items())), 0.0)

    def series_of(self, prefix: str) -> set[tuple[str, frozenset[tuple[str, str]]]]:
        """All series whose names begin so."""
        return {key for key in self.series if key[0].startswith(prefix)}

    async def exported_again(self, times: int = 2) -> None:
        """Wait until metrics that were collected from now on have arrived."""
        seen = self.metric_exports
        await eventually(lambda: self.metric_exports >= seen + times, what="further metrics")

    async def until(self, condition: Callable[[Receiver], bool], what: str) -> None:
        """Wait for a condition of what has arrived."""
        await eventually(lambda: condition(self), what=what)

    def _trace_of(self, saga_id: str) -> list[Span]:
        ids = {span.trace_id for span in self.spans if span.attributes.get("amends.saga.id") == saga_id}
        return [span for span in self.spans if span.trace_id in ids]

    def _take_spans(self, request: ExportTraceServiceRequest) -> None:
        for of_resource in request.resource_spans:
            service = str(_attributes(of_resource.resource.attributes).get("service.name", ""))
            for of_scope in of_resource.scope_spans:
                for span in map(partial(_span, service), of_scope.spans):
                    known = (span.trace_id, span.span_id)
                    if known not in self._known:  # what comes again is the same span, as backends have it
                        self._known.add(known)
                        self.spans.append(span)

    def _take_metrics(self, request: ExportMetricsServiceRequest) -> None:
        self.metric_exports += 1
        for of_resource in request.resource_metrics:
            for of_scope in of_resource.scope_metrics:
                for metric in of_scope.metrics:
                    self._take(metric)

    def _take(self, metric: Metric) -> None:
        points: list[tuple[Any, float]] = [(point, point.count) for point in metric.histogram.data_points]
        for numbers in (metric.sum.data_points, metric.gauge.data_points):
            points += ((point, point.as_int if point.HasField("as_int") else point.as_double) for point in numbers)
        for point, value in points:
            labels = {key: str(text) for key, text in _attributes(point.attributes).items()}
            self.series[metric.name, frozenset(labels.items())] = value


@asynccontextmanager
async def receiver() -> AsyncGenerator[Receiver]:
    """A receiver that listens; its endpoint is `http://` + its address."""
    taking = Receiver()
    server = grpc.aio.server()
    for kind in ("Trace", "Metrics"):
        module: Any = import_module(f"{SERVICES}.{kind.lower()}.v1.{kind.lower()}_service_pb2_grpc")
        getattr(module, f"add_{kind}ServiceServicer_to_server")(taking, server)
    taking.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    try:
        yield taking
    finally:
        await asyncio.shield(server.stop(1))


def _span(service: str, span: OtlpSpan) -> Span:
    return Span(
        service=service,
        name=span.name,
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        kind=span.kind,
        is_error=span.status.code == span.status.STATUS_CODE_ERROR,
        start_ns=span.start_time_unix_nano,
        end_ns=span.end_time_unix_nano,
        attributes=_attributes(span.attributes),
        events=tuple(event.name for event in span.events),
    )


def _attributes(pairs: Any) -> dict[str, str | int | bool]:  # Any: a container without a name in the stubs
    found: dict[str, str | int | bool] = {}
    pair: KeyValue
    for pair in pairs:
        found[pair.key] = getattr(pair.value, pair.value.WhichOneof("value") or "string_value")
    return found
