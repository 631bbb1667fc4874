"""The client of those who start sagas and wait for their end.

Every call has a deadline and is safe to repeat: a saga's id is chosen before it is started, so that a start whose
answer was lost is sent again with the same id and finds its saga. While no coordinator answers, calls are repeated
within a bound; waiting for the end of a saga goes on over restarts of the coordinator for as long as the caller wants.
"""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import grpc
from google.protobuf.message import Message
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from amends.coordinator_calls import Bounds, CoordinatorCalls, check_target
from amends.descriptors import descriptor_of
from amends.errors import (
    ClientClosedError,
    DefinitionNotFoundError,
    FieldFault,
    InvalidRequestError,
    WrongMessageError,
)
from amends.handle import SagaHandle, abort_saga
from amends.keys import new_saga_id
from amends.options import check_duration, check_instant
from amends.v1 import saga_pb2, saga_service_pb2
from amends.waiting import ENDS, LONGEST_WAIT, LONGEST_WAIT_S, SHORTEST_WAIT
from amends.watching import watch_saga

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Iterable, Mapping, Sequence
    from types import TracebackType

    from amends.results import Committed, Compensated, CompensationFailed
    from amends.saga import Saga

In = TypeVar("In", bound=Message)
Out = TypeVar("Out", bound=Message | None)

_TRACE_CONTEXT = TraceContextTextMapPropagator()


class SagaClient:
    """Starts sagas at one coordinator and follows them.

        async with SagaClient("localhost:7070") as client:
            handle = await client.start(order, PlaceOrder(sku="x"), saga_id="order-1042")
            match await handle.wait():
                case Committed(output=placed): ...
                case Compensated(reason=why): ...
                case CompensationFailed(dead_letters=left): ...

    Make one for the life of a process and share it between tasks of one event loop.
    """

    def __init__(
        self,
        target: str,
        *,
        credentials: grpc.ChannelCredentials | None = None,
        options: Sequence[tuple[str, Any]] = (),  # gRPC's own type for them
        call_timeout: timedelta = timedelta(seconds=10),
        unavailable_timeout: timedelta = timedelta(seconds=10),
    ) -> None:
        """Makes a client; nothing is sent before it is entered and used.

        Arguments:
            target: the coordinator's address: "host:port", "[::1]:port" or a gRPC target such as "unix:/path" and
                "dns:///host:port".
            credentials: TLS and the like, from `grpc.ssl_channel_credentials`; None: plain text.
            options: gRPC channel options, over ours.
            call_timeout: the deadline of one attempt of a call.
            unavailable_timeout: how long a call is repeated while the coordinator is unavailable. `SagaHandle.wait` has
                a bound of its own.

        Raises:
            InvalidAddressError: the target can't be an address.
        """
        check_target(target)
        check_duration("call_timeout", call_timeout)
        check_duration("unavailable_timeout", unavailable_timeout)
        self.target = target
        self._credentials, self._options = credentials, tuple(options)
        self._bounds = Bounds(call_timeout.total_seconds(), unavailable_timeout.total_seconds())
        self._calls: CoordinatorCalls | None = None
        self._versions: dict[str, str] = {}
        self._registering = asyncio.Lock()

    async def __aenter__(self) -> SagaClient:
        # Only here, because a channel belongs to the event loop that runs when it is made.
        self._calls = CoordinatorCalls(
            self.target, credentials=self._credentials, options=self._options, bounds=self._bounds
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connection. Sagas go on without it. Safe to repeat."""
        calls, self._calls = self._calls, None
        if calls is not None:
            await calls.close()

    async def start(
        self,
        saga: Saga[In, Out],
        input: In,  # noqa: A002 - the word that definitions use
        *,
        saga_id: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> SagaHandle[Out]:
        """Starts a saga, or finds it if it was started before; answers once it is durable.

        Safe to repeat with the same `saga_id` and input: the saga runs once. The definition is registered with the
        first start, and the saga keeps the version that it was started with.

        Arguments:
            saga: what to run.
            input: its input; at most 1 MiB.
            saga_id: `[A-Za-z0-9][A-Za-z0-9._~-]{0,127}`, best something that the caller can say again after a crash,
                such as "order-1042". None: a new UUIDv7. An empty one is refused: it would be a new saga each time.
            labels: to find it by; at most 16, keys `[a-z][a-z0-9_.-]{0,62}`, values up to 256 characters.

        Returns:
            A handle to wait with.

        Raises:
            DefinitionError: the saga isn't complete.
            WrongMessageError: the input is of another type than the saga's.
            InvalidDefinitionError: the coordinator found faults in the definition; it names all of them.
            InvalidRequestError: it found faults in the id, the labels or the input.
            SagaIdInUseError: the id belongs to a saga with another definition or another input.
            CoordinatorUnavailableError: no coordinator answered. The saga may have begun all the same: start it again
                with the id that the message names.
        """
        request = self._start_request(saga, input, saga_id, labels)
        await self._begin(saga, request)
        return SagaHandle(self._connection, saga, request.saga_id)

    async def run(
        self,
        saga: Saga[In, Out],
        input: In,  # noqa: A002 - the word that definitions use
        *,
        saga_id: str | None = None,
        labels: Mapping[str, str] | None = None,
        timeout: timedelta | None = None,
    ) -> Committed[Out] | Compensated | CompensationFailed:
        """Starts a saga and waits for its end, in one round trip where that is enough; safe to repeat like `start`.

        Arguments:
            saga, input, saga_id, labels: as of `start`.
            timeout: how long to wait for the end; None: for as long as it takes, also over restarts of the coordinator.

        Returns:
            As `SagaHandle.wait`.

        Raises:
            What `start` and `SagaHandle.wait` raise. After a `WaitTimeoutError` the saga goes on.
        """
        check_duration("timeout", timeout)
        began_at = asyncio.get_running_loop().time()
        request = self._start_request(saga, input, saga_id, labels)
        if timeout is None or timeout > LONGEST_WAIT:
            request.wait_timeout.seconds = int(LONGEST_WAIT_S)
        else:
            request.wait_timeout.FromTimedelta(timeout)
        handle = SagaHandle(self._connection, saga, request.saga_id)
        with self._connection().notices.about(request.saga_id):
            stands = await self._begin(saga, request)
        if stands.state in ENDS:
            return handle.end(stands)
        left = None if timeout is None else timeout - timedelta(seconds=asyncio.get_running_loop().time() - began_at)
        return await handle.wait(None if left is None else max(left, SHORTEST_WAIT))

    def handle(self, saga: Saga[In, Out], saga_id: str) -> SagaHandle[Out]:
        """A handle to a saga that was started before, here or elsewhere. Nothing is sent: `wait` finds it or not."""
        return SagaHandle(self._connection, saga, saga_id)

    async def get(self, saga_id: str) -> saga_pb2.Saga:
        """A saga as it stands, with every row of its ledger and its dead letters.

        Raises:
            SagaNotFoundError: no saga has this id.
        """
        request = saga_service_pb2.GetSagaRequest(saga_id=saga_id)
        answer = await self._connection().call(lambda stub: stub.GetSaga, request, doing=f"looking at saga {saga_id!r}")
        return answer.saga

    def watch(self, saga_id: str) -> AsyncGenerator[saga_pb2.Saga]:
        """A saga as it is, then each time it changes, with every row of its ledger, until nothing is left to do.

            async for saga in client.watch("order-1042"):
                print(saga.state, saga.succeeded_step_count, "of", saga.step_count)

        Changes that follow each other closely may come as one. It goes on over restarts of the coordinator, without
        telling anything twice, and ends after the saga has ended; `COMPENSATION_FAILED` is no end, since a person can
        move it. Leave it whenever you want to.

        Raises:
            SagaNotFoundError: no saga has this id.
            CoordinatorUnavailableError: no coordinator answered for `unavailable_timeout`.
            CoordinatorError: as many watch there as may (`TOO_MANY_WATCHERS`).
        """
        return watch_saga(self._connection(), saga_id)

    async def abort(self, saga_id: str, reason: str = "") -> saga_pb2.Saga:
        """Asks a saga to roll back; answers the saga as its row stands afterwards, with its dead letters.

        It rolls back from then on, whatever becomes of this client; `SagaHandle.wait` tells its end. Safe to repeat: a
        saga that rolls back, or has done so, answers the same again.

        Arguments:
            saga_id: the saga.
            reason: why, at most 512 bytes; kept in the saga's failure.

        Raises:
            PastPointOfNoReturnError: it only goes forward, or has committed; nothing was changed.
            SagaNotFoundError: no saga has this id.
            CoordinatorUnavailableError: it may have been accepted all the same: ask again.
        """
        return await abort_saga(self._connection(), saga_id, reason)

    async def list(  # noqa: PLR0913 - each filter has a default and is given by name
        self,
        *,
        states: Iterable[saga_pb2.Saga.State.ValueType] = (),
        definition: str = "",
        definition_version: str = "",
        labels: Mapping[str, str] | None = None,
        attention_required: bool = False,
        unproven: bool = False,
        compensations_owed: bool = False,
        participant: str = "",
        since: datetime | None = None,
        until: datetime | None = None,
        updated_since: datetime | None = None,
        updated_until: datetime | None = None,
        stalled_for: timedelta | None = None,
        page_size: int = 0,
    ) -> AsyncIterator[saga_pb2.Saga]:
        """Sagas that every given filter lets through, newest first, without the rows of their ledger; page by page as
        they are asked for.

        Arguments:
            states: only those in one of these states, for example `[saga_pb2.Saga.STATE_RUNNING]`; empty: all.
            definition, definition_version: only those of this definition, of this version of it.
            labels: only those with each of these labels.
            attention_required: only those with an open dead letter.
            unproven: only those whose end rests on an assumption that no participant has proven.
            compensations_owed: only those that still owe compensations.
            participant: only those that have a step which this participant serves.
            since, until: only those started then or later, then or earlier; with their time zone.
            updated_since, updated_until: only those written last then or later, then or earlier.
            stalled_for: only those that have something left to do and haven't got on for so long.
            page_size: how many to fetch at once, up to 1,000; 0: the coordinator's default, 100.

        Raises:
            InvalidRequestError: filters contradict each other or can't be read; it names them.
            DefinitionError: a time doesn't say its zone, or the duration isn't one.
        """
        check_duration("stalled_for", stalled_for)
        request = saga_service_pb2.ListSagasRequest(
            states=states,
            page_size=page_size,
            definition_name=definition,
            definition_version=definition_version,
            labels=labels,
            attention_required=attention_required,
            unproven=unproven,
            compensations_owed=compensations_owed,
            participant=participant,
        )
        for field, name, instant in (
            (request.earliest_create_time, "since", since),
            (request.latest_create_time, "until", until),
            (request.earliest_update_time, "updated_since", updated_since),
            (request.latest_update_time, "updated_until", updated_until),
        ):
            check_instant(name, instant)
            if instant is not None:
                field.FromDatetime(instant)
        if stalled_for is not None:
            request.stalled_for.FromTimedelta(stalled_for)
        while True:
            answer = await self._connection().call(lambda stub: stub.ListSagas, request, doing="listing sagas")
            for saga in answer.sagas:
                yield saga
            if not answer.next_page_token:
                return
            request.page_token = answer.next_page_token

    def _connection(self) -> CoordinatorCalls:
        if self._calls is None:
            raise ClientClosedError(
                f"this SagaClient isn't open: use it inside `async with SagaClient({self.target!r}) as client:`"
            )
        return self._calls

    async def _version(self, saga: Saga[In, Out]) -> str:
        """The version that the coordinator has of the saga's definition, which is registered if need be."""
        fingerprint = saga.fingerprint()
        async with self._registering:
            if fingerprint not in self._versions:
                request = saga_service_pb2.RegisterSagaDefinitionRequest(definition=saga.definition())
                answer = await self._connection().call(
                    lambda stub: stub.RegisterSagaDefinition, request, doing=f"registering saga {saga.name!r}"
                )
                self._versions[fingerprint] = answer.definition.version
            return self._versions[fingerprint]

    def _start_request(
        self, saga: Saga[In, Out], message: In, saga_id: str | None, labels: Mapping[str, str] | None
    ) -> saga_service_pb2.StartSagaRequest:
        _check_type(f"saga {saga.name!r} is started with", message, saga.input_type)
        saga_id = new_saga_id() if saga_id is None else _named(saga_id)
        request = saga_service_pb2.StartSagaRequest(saga_id=saga_id, definition_name=saga.name, labels=labels)
        request.input.Pack(message, deterministic=True)
        return request

    async def _begin(self, saga: Saga[In, Out], request: saga_service_pb2.StartSagaRequest) -> saga_pb2.Saga:
        """Start the saga with the version that the coordinator has of its definition, registering it if need be."""
        # Without the lock, too: a registration that takes its time holds up no start of another saga.
        request.definition_version = self._versions.get(saga.fingerprint()) or await self._version(saga)
        try:
            return (await self._start(request)).saga
        except DefinitionNotFoundError:
            # The coordinator has another ledger than when we registered: register once more.
            self._versions.pop(saga.fingerprint(), None)
            request.definition_version = await self._version(saga)
            return (await self._start(request)).saga

    def _start(self, request: saga_service_pb2.StartSagaRequest) -> Awaitable[saga_service_pb2.StartSagaResponse]:
        carrier: dict[str, str] = {}
        _TRACE_CONTEXT.inject(carrier)
        return self._connection().start(request, trace=carrier)


def _named(saga_id: str) -> str:
    """The id as it is. The coordinator would give an empty one a new saga, and another when the start is repeated."""
    if not saga_id:
        raise InvalidRequestError(
            "saga_id is empty; nothing was started",
            reason="INVALID_REQUEST",
            status_code=grpc.StatusCode.INVALID_ARGUMENT,
            fields=[FieldFault("saga_id", "is empty")],
            what_to_do="Give an id, or leave saga_id out for a new one.",
        )
    return saga_id


def _check_type(what: str, given: Message, wanted: type[Message]) -> None:
    # By name, not by class: a message of another pool with the same type is as good.
    descriptor = getattr(given, "DESCRIPTOR", None)
    name, right = getattr(descriptor, "full_name", type(given).__name__), descriptor_of(wanted).full_name
    if name != right:
        raise WrongMessageError(f"{what} a {name}, but it takes a {right}")
