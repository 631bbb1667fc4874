"""The participant's end of a call as a span: below the coordinator's attempt, and current while the handler runs.

Spans are made with OpenTelemetry's API: without an SDK set up in the process they cost nearly nothing and go nowhere. A
call that carries no trace context gets none. The names are OpenTelemetry's semantic conventions for RPC as of release
1.40; the attribute of the status code is still moving between its releases.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Self

import grpc
from opentelemetry import context as telemetry_context
from opentelemetry import trace
from opentelemetry.trace import SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from amends.participant.guards import Answer

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span

    from amends.participant.context import StepContext
    from amends.participant.guards import Verdict

RPC_SYSTEM = "rpc.system.name"
RPC_METHOD = "rpc.method"
RPC_STATUS_CODE = "rpc.response.status_code"
ERROR_TYPE = "error.type"
SAGA_ID = "amends.saga.id"
STEP = "amends.step"
DIRECTION = "amends.direction"
ATTEMPT = "amends.attempt"

SERVER_FAULTS = frozenset(
    {
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.UNIMPLEMENTED,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DATA_LOSS,
    }
)
"""The codes by which a server says that something is wrong with itself; a clear no is none of them."""

FAILED = "the span of %s failed; the call goes on"

log = logging.getLogger("amends.participant")

_propagator = TraceContextTextMapPropagator()
_tracer = trace.get_tracer("amends")


class StepSpan:
    """The span of one call, below the attempt that its metadata tells of; the current one for as long as it is entered.

    Args:
        method: "package.Service/Method".
        step: the call's step.
        traceparent: of the attempt.
    """

    __slots__ = ("_context", "_method", "_span", "_token")

    def __init__(self, method: str, step: StepContext, traceparent: str) -> None:
        carrier = {"traceparent": traceparent}
        if step.tracestate is not None:
            carrier["tracestate"] = step.tracestate
        above = _propagator.extract(carrier)
        self._method, self._span = method, _begun(method, step, above)
        self._context = above if self._span is None else trace.set_span_in_context(self._span, above)

    def __enter__(self) -> Self:
        self._token = telemetry_context.attach(self._context)
        return self

    def __exit__(self, *_: object) -> None:
        telemetry_context.detach(self._token)
        if self._span is not None:
            _end(self._method, self._span)

    def ended(self, verdict: Verdict) -> None:
        """Note what is answered."""
        if self._span is None or not self._span.is_recording():
            return
        code = grpc.StatusCode.OK if isinstance(verdict, Answer) else verdict.code
        self._span.set_attribute(RPC_STATUS_CODE, code.name)
        if code in SERVER_FAULTS:
            self._span.set_attribute(ERROR_TYPE, code.name)
            self._span.set_status(Status(StatusCode.ERROR))


# A sampler or a span processor of the author's may raise: no reason to fail the call, nor to lose what it did.


def _begun(method: str, step: StepContext, above: Context) -> Span | None:
    try:
        return _tracer.start_span(method, context=above, kind=SpanKind.SERVER, attributes=_attributes(method, step))
    except Exception:
        log.exception(FAILED, method)
        return None


def _end(method: str, span: Span) -> None:
    try:
        span.end()
    except Exception:
        log.exception(FAILED, method)


def _attributes(method: str, step: StepContext) -> dict[str, str | int]:
    return {
        RPC_SYSTEM: "grpc",
        RPC_METHOD: method,
        SAGA_ID: step.saga_id,
        STEP: step.step,
        DIRECTION: step.direction.value,
        ATTEMPT: step.attempt,
    }
