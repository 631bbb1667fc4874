"""A participant's own span: below the coordinator's attempt, current in the handler, with what was answered."""

from __future__ import annotations

from typing import TYPE_CHECKING

import grpc
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from amends import Rejected
from amends.participant import tracing
from shop.inventory.v1.inventory_pb2 import ReserveRequest, ReserveResponse
from tests.integration.participant.calls import RESERVE, Behaviour, PlainInventory, ReserveContext, as_step
from tests.integration.participant.test_answers import answer_of, reserve, serving_servicer

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import ReadableSpan, Span

pytestmark = pytest.mark.telemetry

TRACE_ID, ATTEMPT_ID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACED = as_step(traceparent=f"00-{TRACE_ID}-{ATTEMPT_ID}-01")


@pytest.fixture
def exported(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """Where finished spans go."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(tracing, "_tracer", provider.get_tracer("test"))
    return exporter


def the_span(exported: InMemorySpanExporter) -> ReadableSpan:
    """The only one."""
    (span,) = exported.get_finished_spans()
    return span


async def test_the_span_hangs_under_the_attempt_and_is_current(exported: InMemorySpanExporter) -> None:
    """What a handler does is seen below its call, and its call below the saga's attempt."""
    current: list[int] = []

    async def behaviour(request: ReserveRequest, context: ReserveContext) -> ReserveResponse:
        current.append(trace.get_current_span().get_span_context().span_id)
        return ReserveResponse(reservation_id=request.sku)

    await answer_of(behaviour, TRACED)
    span = the_span(exported)
    assert span.context is not None
    assert span.parent is not None
    assert (span.context.trace_id, span.parent.span_id) == (int(TRACE_ID, 16), int(ATTEMPT_ID, 16))
    assert current == [span.context.span_id]
    assert (span.name, span.kind) == (RESERVE, SpanKind.SERVER)
    assert span.attributes is not None
    assert span.attributes["amends.saga.id"] == "order-1"
    assert span.attributes["rpc.response.status_code"] == "OK"
    assert span.status.status_code is StatusCode.UNSET


async def _refuses(request: ReserveRequest, context: ReserveContext) -> ReserveResponse:
    raise Rejected("sold out")


async def _fails(request: ReserveRequest, context: ReserveContext) -> ReserveResponse:
    raise ValueError("4111-1111-1111-1111")


@pytest.mark.parametrize(
    ("behaviour", "code", "is_error"), [(_refuses, "FAILED_PRECONDITION", False), (_fails, "UNKNOWN", True)]
)
async def test_a_clear_no_is_no_error_of_the_participant(
    exported: InMemorySpanExporter, behaviour: Behaviour, code: str, *, is_error: bool
) -> None:
    """A fault of the handler is; its text stays in the participant's log."""
    await answer_of(behaviour, TRACED)
    span = the_span(exported)
    assert span.attributes is not None
    assert span.attributes["rpc.response.status_code"] == code
    assert (span.status.status_code is StatusCode.ERROR) == is_error
    assert "4111" not in span.to_json()


async def test_a_plain_handler_has_its_span_in_its_thread(exported: InMemorySpanExporter) -> None:
    """Whatever a thread does is below the call, too."""
    current: list[int] = []

    def behaviour(request: ReserveRequest, context: grpc.ServicerContext) -> ReserveResponse:
        current.append(trace.get_current_span().get_span_context().span_id)
        return ReserveResponse(reservation_id=request.sku)

    async with serving_servicer(PlainInventory(behaviour)) as channel:
        await reserve(channel, TRACED)
    span = the_span(exported)
    assert span.context is not None
    assert current == [span.context.span_id]


class Failing(SpanProcessor):
    """A span processor with a fault of its own, at a span's beginning or at its end."""

    def __init__(self, method: str) -> None:
        self._method = method

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """See the class."""
        self._fail("on_start")

    def on_end(self, span: ReadableSpan) -> None:
        """See the class."""
        self._fail("on_end")

    def _fail(self, method: str) -> None:
        if method == self._method:
            raise RuntimeError("planted")


@pytest.mark.parametrize("method", ["on_start", "on_end"])
async def test_a_fault_of_the_telemetry_costs_no_call(monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    """What the handler did is answered, whatever becomes of its span."""
    provider = TracerProvider()
    provider.add_span_processor(Failing(method))
    monkeypatch.setattr(tracing, "_tracer", provider.get_tracer("test"))

    async def behaviour(request: ReserveRequest, context: ReserveContext) -> ReserveResponse:
        return ReserveResponse(reservation_id=request.sku)

    assert (await answer_of(behaviour, TRACED)).code is grpc.StatusCode.OK


async def test_no_trace_no_span(exported: InMemorySpanExporter) -> None:
    """A call that nobody traces costs no span."""

    async def behaviour(request: ReserveRequest, context: ReserveContext) -> ReserveResponse:
        return ReserveResponse()

    await answer_of(behaviour)
    assert not exported.get_finished_spans()
