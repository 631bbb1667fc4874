"""Hands a saga's spans to OpenTelemetry's SDK once it has ended, or can't go on without a person.

A saga that committed is emitted if its trace is sampled or if it was slow; every other one is emitted whole, at any
ratio. Emitting puts values into a bounded queue and returns: a backend that hangs, refuses or is absent costs spans,
never time.

What a compensated saga still tells those whom it concerns (`on_compensated`) comes after it, call by call.

After a person has helped a saga on, its spans are emitted once more, with the same ids: backends keep one of each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from opentelemetry.sdk.trace import Event as SdkEvent
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, TraceFlags
from opentelemetry.trace.status import Status, StatusCode

from amends_coordinator.core.states import IntentState, SagaState
from amends_coordinator.core.tracing import trace_of
from amends_coordinator.telemetry.spans import Span, spans_of, spans_of_call

if TYPE_CHECKING:
    from collections.abc import Iterable

    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import SpanProcessor

    from amends_coordinator.core.saga import Intent, Saga

SCOPE = InstrumentationScope("amends_coordinator")
NANOS = 1_000
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)


class SagaTraces:
    """Emits sagas as spans.

    Args:
        processor: takes finished spans, at once.
        resource: what this process is.
        ratio: how many of the committed sagas without a sampled starter are emitted, from 0 to 1.
        slow_us: a saga that took longer is emitted however it ended, in microseconds.
    """

    def __init__(self, processor: SpanProcessor, *, resource: Resource, ratio: float, slow_us: int) -> None:
        self._processor, self._resource, self._ratio, self._slow_us = processor, resource, ratio, slow_us

    def saga_moved(self, saga: Saga) -> None:
        """Emit a saga that has come to rest, if it is one to be seen."""
        at_rest = saga.state.ended or saga.state is SagaState.COMPENSATION_FAILED
        if at_rest and self._is_seen(saga):
            self.emit(saga)

    def intent_moved(self, saga: Saga, intent: Intent) -> None:
        """Emit a call that its saga was emitted without, because it goes on after the saga's end."""
        if saga.state is not SagaState.COMPENSATED or intent.state is IntentState.PENDING:
            return
        if any(step.name == intent.step for step in saga.plan.on_compensated):
            self._emit(spans_of_call(saga, intent, ratio=self._ratio))

    def emit(self, saga: Saga) -> None:
        """Emit a saga as it is."""
        self._emit(spans_of(saga, ratio=self._ratio))

    def _emit(self, spans: Iterable[Span]) -> None:
        for span in spans:
            self._processor.on_end(self._readable(span))

    def _is_seen(self, saga: Saga) -> bool:
        if saga.state is not SagaState.COMMITTED:
            return True
        took_us = (saga.ended_time or saga.updated_time) - saga.created_time
        return took_us >= self._slow_us or trace_of(saga, ratio=self._ratio).sampled

    def _readable(self, span: Span) -> ReadableSpan:
        return ReadableSpan(
            name=span.name,
            context=_context(span.trace_id, span.span_id),
            parent=_context(span.trace_id, span.parent_span_id) if span.parent_span_id else None,
            resource=self._resource,
            attributes=span.attributes,
            events=[SdkEvent(each.name, dict(each.attributes), each.time * NANOS) for each in span.events],
            kind=SpanKind.CLIENT if span.is_call else SpanKind.INTERNAL,
            instrumentation_scope=SCOPE,
            status=Status(StatusCode.ERROR, span.error) if span.error is not None else Status(StatusCode.UNSET),
            start_time=span.start_time * NANOS,
            end_time=span.end_time * NANOS,
        )


def _context(trace_id: str, span_id: str) -> SpanContext:
    # Sampled, whatever was decided at the start: what comes here is to be exported.
    return SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=False, trace_flags=_SAMPLED)
