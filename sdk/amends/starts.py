"""Chooses the way of each start of a client: in a list with others, or as a call of its own.

A list of one costs more than a call, so lists begin where several starts are under way at once. A coordinator that
doesn't know lists, or writes other frames than we do, gets calls for as long as the client lives; so does a start that
is too big for a frame, one that the stream has no room for, and one that is sent again because its answer was lost:
whatever is wrong with a stream, it is never in the way of what a call can do.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from amends.internal.v1alpha1.start_service_pb2_grpc import StartServiceStub
from amends.start_stream import StartStream

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from typing import Any

    import grpc

    from amends.v1.saga_service_pb2 import StartSagaRequest, StartSagaResponse

LARGEST_FRAME_BYTES = 2 << 20
"""No frame is larger, whatever is in it; a channel must let messages of this size pass."""
MESSAGE_LIMITS = ("grpc.max_receive_message_length", "grpc.max_send_message_length")
REOPEN_PAUSE_S = 1.0
"""After a stream has ended starts go as calls for so long."""


class Starts:
    """The starts of one client.

    Arguments:
        channel: to the coordinator.
        may_list: False: every start is a call.

    Attributes:
        least_under_way: how many starts must be under way for another one to go in a list.
    """

    def __init__(self, channel: grpc.aio.Channel, *, may_list: bool) -> None:
        self._channel = channel
        self._may_list = may_list
        self._stream: StartStream | None = None
        self._under_way = 0
        self._reopen_at_s = 0.0
        self.least_under_way = 1

    @property
    def is_listing(self) -> bool:
        """Whether a stream is open."""
        return self._stream is not None and self._stream.is_open

    async def carry_out(
        self,
        request: StartSagaRequest,
        *,
        timeout_s: float,
        trace: Mapping[str, str],
        by_call: Callable[[], Awaitable[StartSagaResponse]],
    ) -> StartSagaResponse:
        """One start.

        Arguments:
            request: what to start.
            timeout_s: its deadline.
            trace: the trace context of whoever starts it.
            by_call: makes a call of it.

        Raises:
            grpc.aio.AioRpcError: what a call raises, whichever way it went.
        """
        self._under_way += 1
        try:
            if self._may_list and self._under_way > self.least_under_way and (stream := self.open()) is not None:
                data = request.SerializeToString()
                if stream.takes(data):
                    answer = await stream.start(data, timeout_s=timeout_s, trace=trace)
                    if answer is not None:
                        return answer
            return await by_call()
        finally:
            self._under_way -= 1

    def open(self) -> StartStream | None:
        """The stream, once it is open; the first who asks has it opened, and nobody waits for that."""
        if self._stream is None and asyncio.get_running_loop().time() >= self._reopen_at_s:
            self._stream = StartStream(StartServiceStub(self._channel), ended=self._ended)
        return self._stream if self.is_listing else None

    async def close(self) -> None:
        """Ends the stream, if there is one."""
        self._may_list = False
        if self._stream is not None:
            await self._stream.close()

    def _ended(self, is_spoken: bool) -> None:
        self._stream = None
        self._may_list = self._may_list and is_spoken
        self._reopen_at_s = asyncio.get_running_loop().time() + REOPEN_PAUSE_S


def lets_frames_pass(options: Sequence[tuple[str, Any]]) -> bool:  # gRPC's own type for them
    """Whether a channel with these options takes our largest frames; -1 lets everything pass."""
    limits = [value for name, value in options if name in MESSAGE_LIMITS]
    return all(value < 0 or value >= LARGEST_FRAME_BYTES for value in limits)
