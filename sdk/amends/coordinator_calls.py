"""Carries out calls of the coordinator: each with a deadline, repeated while nobody answers, within a bound."""

from __future__ import annotations

import asyncio
import random
import re
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any, TypeVar, cast

import grpc

from amends.errors import AmendsError, ClientClosedError, CoordinatorUnavailableError, InvalidAddressError
from amends.notices import Notices
from amends.rpc_errors import coordinator_error
from amends.starts import Starts, lets_frames_pass
from amends.v1 import saga_pb2, saga_service_pb2
from amends.v1.saga_service_pb2_grpc import SagaServiceStub

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterator, Mapping, Sequence
    from datetime import timedelta

    from google.protobuf.message import Message

Request = TypeVar("Request", bound="Message")
Answer = TypeVar("Answer", bound="Message")

CHANNEL_OPTIONS: tuple[tuple[str, int], ...] = (
    # We repeat calls ourselves: gRPC's own retries, and those that a resolver may bring, would hide attempts from us.
    ("grpc.enable_retries", 0),
    ("grpc.service_config_disable_resolution", 1),
    # gRPC's own default waits up to two minutes before it sees that a coordinator is back.
    ("grpc.initial_reconnect_backoff_ms", 100),
    # Not what its name says: so long may an attempt to connect take, through proxies and to a server that is far away.
    ("grpc.min_reconnect_backoff_ms", 5_000),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    # A saga with all its requests and responses: far above what limits on payloads and steps make likely.
    ("grpc.max_receive_message_length", 64 * 1024 * 1024),
    # While calls are open: a stream has no deadline, so only this finds a coordinator whose machine is gone.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
)

HOST_AND_PORT = re.compile(r"(?:\[[0-9A-Za-z:.%]+\]|[^\s:/\[\]]+):(?P<port>\d{1,5})")
RESOLVED_BY_GRPC = ("dns:", "ipv4:", "ipv6:", "unix:", "unix-abstract:", "vsock:", "xds:")
"""How targets begin that gRPC has a resolver of its own for; what follows is for that resolver to judge."""

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 2.0

CALL_ENDS = (grpc.aio.AioRpcError, grpc.aio.UsageError, asyncio.CancelledError)
"""What gRPC raises where a call has no answer."""
PASSES = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
"""What repeating can help against."""


def check_target(target: str) -> None:
    """Refuses what can't be a coordinator's address: gRPC itself would look for it at port 443, or for ever.

    Raises:
        InvalidAddressError: it is neither "host:port" nor a target that names its resolver.
    """
    # A caller without a type checker may pass an environment variable that isn't set.
    if isinstance(target, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        found = HOST_AND_PORT.fullmatch(target)
        if target.startswith(RESOLVED_BY_GRPC) or (found is not None and 0 < int(found["port"]) < 65_536):
            return
    raise InvalidAddressError(
        f"{target!r} is no address of a coordinator: write host:port, for example localhost:7070 or [::1]:7070"
    )


@dataclass(frozen=True, slots=True)
class Bounds:
    """How long calls may take."""

    call_timeout_s: float
    """Deadline of one attempt."""
    unavailable_timeout_s: float
    """How long a call is repeated while the coordinator is unavailable."""


class Pauses:
    """The growing pauses between attempts; half of each is chance, so that many clients don't come back at once."""

    def __init__(self) -> None:
        self._next_s = FIRST_PAUSE_S

    def next_s(self, asked_for: timedelta | None = None) -> float:
        """The next pause in seconds; what the coordinator asked for, where it did, up to the longest pause."""
        pause_s = self._next_s * (0.5 + random.random() / 2)  # spreads load, guards no secret
        self._next_s = min(self._next_s * 2, LONGEST_PAUSE_S)
        return min(max(pause_s, asked_for.total_seconds() if asked_for else 0.0), LONGEST_PAUSE_S)


class CoordinatorCalls:
    """Calls one coordinator over one channel."""

    def __init__(
        self,
        target: str,
        *,
        credentials: grpc.ChannelCredentials | None,
        options: Sequence[tuple[str, Any]],  # gRPC's own type: a value is a number, a text or bytes
        bounds: Bounds,
        channel: grpc.aio.Channel | None = None,
    ) -> None:
        """A channel that is handed in is used instead of one to the target, and closed like it."""
        self.target, self.bounds = target, bounds
        # gRPC takes the last of several options with one name, so a caller's win.
        all_options = [*CHANNEL_OPTIONS, *options]
        if channel is not None:
            self._channel = channel
        elif credentials is None:
            self._channel = grpc.aio.insecure_channel(target, options=all_options)
        else:
            self._channel = grpc.aio.secure_channel(target, credentials, options=all_options)
        self._stub = SagaServiceStub(self._channel)
        self.starts = Starts(self._channel, may_list=channel is None and lets_frames_pass(options))
        """Chooses the way of each start."""
        self._closed = False
        self._streams: set[grpc.aio.UnaryStreamCall[Any, Any]] = set()  # of whatever messages
        self.notices = Notices(self._look)
        """Tells why nothing comes."""

    async def close(self) -> None:
        """Closes the channel; calls under way end with `ClientClosedError`."""
        self._closed = True
        self.notices.close()
        for stream in self._streams:
            stream.cancel()  # a channel that is closed leaves its open streams alone
        await self.starts.close()
        await self._channel.close()

    async def call(
        self,
        rpc: Callable[[SagaServiceStub], grpc.aio.UnaryUnaryMultiCallable[Request, Answer]],
        request: Request,
        *,
        doing: str,
    ) -> Answer:
        """One call that is safe to repeat, repeated while the coordinator is unavailable.

        Arguments:
            rpc: which method of the service.
            request: its request.
            doing: what it is for, for the errors: "starting saga 'order-1042'".

        Raises:
            CoordinatorUnavailableError: it was unavailable until the bound was over, or didn't answer in time.
            CoordinatorError: it refused, with its reason.
        """
        timeout_s = self.bounds.call_timeout_s
        return await self._repeated(repeat(lambda: rpc(self._stub)(request, timeout=timeout_s)), doing=doing)

    def start(
        self,
        request: saga_service_pb2.StartSagaRequest,
        *,
        trace: Mapping[str, str],
    ) -> Awaitable[saga_service_pb2.StartSagaResponse]:
        """Starts a saga, in a list with others where that is the shorter way; repeated and raising like `call`.

        Arguments:
            request: what to start; its id is chosen.
            trace: the trace context of whoever starts it, as metadata has it.
        """
        wait = request.wait_timeout
        timeout_s = self.bounds.call_timeout_s + wait.seconds + wait.nanos / 1e9

        def by_call() -> Awaitable[saga_service_pb2.StartSagaResponse]:
            return self._stub.StartSaga(request, timeout=timeout_s, metadata=tuple(trace.items()))

        def first() -> Awaitable[saga_service_pb2.StartSagaResponse]:
            return self.starts.carry_out(request, timeout_s=timeout_s, trace=trace, by_call=by_call)

        return self._repeated(chain((first,), repeat(by_call)), doing=f"starting saga {request.saga_id!r}")

    async def _repeated(self, attempts: Iterator[Callable[[], Awaitable[Answer]]], *, doing: str) -> Answer:
        """One attempt after the other, while the coordinator is unavailable and the bound isn't over."""
        give_up_at = asyncio.get_running_loop().time() + self.bounds.unavailable_timeout_s
        pauses: Pauses | None = None
        while True:
            try:
                answer = await next(attempts)()
            except CALL_ENDS as ended:
                error = self._told(ended, doing)
                try:
                    if error is None:
                        raise
                    if not isinstance(error, CoordinatorUnavailableError) or error.status_code not in PASSES:
                        raise error from ended
                    pauses = Pauses() if pauses is None else pauses
                    pause_s = pauses.next_s(error.retry_delay)
                    if asyncio.get_running_loop().time() + pause_s > give_up_at:
                        raise error from ended
                    self.notices.unheard(error)
                finally:
                    del error  # or it and what it passes through, requests too, hold each other in memory
            else:
                self.notices.heard()
                return answer
            await asyncio.sleep(pause_s)

    async def attempt(
        self,
        rpc: Callable[[SagaServiceStub], grpc.aio.UnaryUnaryMultiCallable[Request, Answer]],
        request: Request,
        *,
        doing: str,
        timeout_s: float | None = None,
    ) -> Answer:
        """One attempt of a call, within `timeout_s` or the usual deadline; raises like `call`."""
        timeout_s = self.bounds.call_timeout_s if timeout_s is None else timeout_s
        with self._telling(doing):
            answer = await rpc(self._stub)(request, timeout=timeout_s)
        self.notices.heard()
        return answer

    async def stream(
        self,
        rpc: Callable[[SagaServiceStub], grpc.aio.UnaryStreamMultiCallable[Request, Answer]],
        request: Request,
        *,
        doing: str,
    ) -> AsyncGenerator[Answer]:
        """One attempt of a call that is answered by a stream, for as long as that lasts; raises like `call`. To be
        closed by whoever asked for it.
        """
        with self._telling(doing):
            answers = rpc(self._stub)(request)
            self._streams.add(answers)
            try:
                while (answer := await answers.read()) is not grpc.aio.EOF:
                    self.notices.heard()
                    yield cast("Answer", answer)  # it is one, since it isn't the end
            finally:
                self._streams.discard(answers)
                answers.cancel()

    @contextmanager
    def _telling(self, doing: str) -> Generator[None]:
        """Turns whatever a call ends with into one of our errors."""
        try:
            yield
        except CALL_ENDS as ended:
            error = self._told(ended, doing)
            try:
                if error is None:
                    raise
                raise error from ended
            finally:
                del error  # as above

    def _told(self, ended: BaseException, doing: str) -> AmendsError | None:
        """What the caller is told of how a call ended; None: it was cancelled itself."""
        if isinstance(ended, grpc.aio.AioRpcError):
            return coordinator_error(ended, target=self.target, doing=doing)
        if isinstance(ended, asyncio.CancelledError):
            task = asyncio.current_task()
            # gRPC cancels the calls of a channel that is closed; nobody cancelled this task then.
            if not self._closed or task is None or task.cancelling():
                return None
        return ClientClosedError(_closed_while(doing))

    async def _look(self, saga_id: str) -> saga_pb2.Saga:
        request = saga_service_pb2.GetSagaRequest(saga_id=saga_id)
        return (await self.attempt(lambda stub: stub.GetSaga, request, doing=f"looking at saga {saga_id!r}")).saga


def _closed_while(doing: str) -> str:
    return f"{doing}: the client was closed meanwhile; sagas go on without it, ask again with an open one"
