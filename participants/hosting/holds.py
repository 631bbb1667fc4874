"""A planted fault: the effect is made, but the first attempt's reply is held back for a while."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import grpc

from amends import StepContext

if TYPE_CHECKING:
    from collections.abc import Sequence

    from google.protobuf.message import Message

_HOLD = re.compile(r"(?P<method>\w+):(?P<field>\w+)=(?P<value>[^:]*):(?P<seconds>\d+(?:\.\d+)?)")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyHold:
    """Which replies are held back: those of a method whose request has this value in this field."""

    method: str
    field: str
    value: str
    seconds: float

    @classmethod
    def parse(cls, text: str) -> ReplyHold:
        """Reads `METHOD:FIELD=VALUE:SECONDS`, for example `Authorize:customer_id=carol:3`.

        Raises:
            ValueError: the text has another shape.
        """
        found = _HOLD.fullmatch(text)
        if found is None:
            raise ValueError(
                f"{text!r} is not a hold: write METHOD:FIELD=VALUE:SECONDS, as in Authorize:customer_id=carol:3"
            )
        return cls(method=found["method"], field=found["field"], value=found["value"], seconds=float(found["seconds"]))

    def applies_to(self, method: str, request: Message) -> bool:
        """Whether the reply to this request is held back."""
        return method == self.method and str(getattr(request, self.field, None)) == self.value


class HeldReplies(grpc.aio.ServerInterceptor):
    """Holds the replies to first attempts back; later attempts are answered at once."""

    def __init__(self, holds: Sequence[ReplyHold]) -> None:
        self._holds = tuple(holds)

    async def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:  # Any: as in gRPC's stubs
        """Stands around the handler of one call."""
        handler = await continuation(handler_call_details)
        method = handler_call_details.method.rpartition("/")[2]
        if not any(hold.method == method for hold in self._holds) or _attempt(handler_call_details) > 1:
            return handler

        async def held(request: Message, context: object) -> Message:
            response: Message = await handler.unary_unary(request, context)
            for hold in self._holds:
                if hold.applies_to(method, request):
                    await asyncio.sleep(hold.seconds)
                    break
            return response

        return grpc.unary_unary_rpc_method_handler(
            held, request_deserializer=handler.request_deserializer, response_serializer=handler.response_serializer
        )


def _attempt(details: grpc.HandlerCallDetails) -> int:
    return StepContext.from_metadata(details.invocation_metadata).attempt
