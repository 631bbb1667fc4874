"""A coordinator of a few lines behind a real gRPC server: it answers what a test tells it to."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
from google.protobuf.message import Message
from google.rpc import code_pb2, error_details_pb2, status_pb2  # type: ignore[import-untyped]  # it ships no stubs
from grpc_status import rpc_status  # type: ignore[import-untyped]  # the same

from amends.internal.v1alpha1.start_service_pb2_grpc import StartServiceServicer, add_StartServiceServicer_to_server
from amends.v1 import saga_pb2
from amends.v1 import saga_service_pb2 as api
from amends.v1.saga_service_pb2_grpc import SagaServiceServicer, add_SagaServiceServicer_to_server

# `Any`: the context's types are those of each method's messages, and none of them matters here.
Context = grpc.aio.ServicerContext[Any, Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Asked:
    """One request that reached the coordinator."""

    method: str
    request: Message
    metadata: dict[str, str | bytes]
    time_left_s: float | None


@dataclass(slots=True)
class Refusal:
    """An answer that is an error, as the real coordinator would give it."""

    code: grpc.StatusCode
    message: str = "no"
    details: list[Message] = field(default_factory=list[Message])


def error_info(reason: str, domain: str = "amends") -> Message:
    """The detail that carries the reason."""
    info: Message = error_details_pb2.ErrorInfo(reason=reason, domain=domain)
    return info


class TellingCoordinator(SagaServiceServicer):
    """Keeps what it was asked and answers from memory; the next refusals are queued by the test.

    Attributes:
        asked: every request, in the order of arrival.
        sagas: by id; a test moves them to their end with `end`.
        refusals: answered first, one per request.
    """

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.sagas: dict[str, saga_pb2.Saga] = {}
        self.refusals: deque[Refusal] = deque()
        self.registered: set[str] = set()
        self.waiting = asyncio.Event()
        self.watching = 0
        self._moved = asyncio.Condition()

    def methods(self) -> list[str]:
        """Names of the methods that were called, in order."""
        return [each.method for each in self.asked]

    async def end(self, saga: saga_pb2.Saga) -> None:
        """Moves a saga to where it is now, and tells those who wait."""
        async with self._moved:
            self.sagas[saga.saga_id] = saga
            self._moved.notify_all()

    async def RegisterSagaDefinition(
        self, request: api.RegisterSagaDefinitionRequest, context: Context
    ) -> api.RegisterSagaDefinitionResponse:
        """Knows the definition from now on."""
        await self._note("RegisterSagaDefinition", request, context)
        version = f"{len(request.definition.SerializeToString(deterministic=True)):016x}"
        self.registered.add(version)
        response = api.RegisterSagaDefinitionResponse()
        response.definition.version = version
        return response

    async def StartSaga(self, request: api.StartSagaRequest, context: Context) -> api.StartSagaResponse:
        """Begins the saga, once per id."""
        await self._note("StartSaga", request, context)
        if request.definition_version not in self.registered:
            await refuse(context, Refusal(grpc.StatusCode.NOT_FOUND, details=[error_info("DEFINITION_NOT_FOUND")]))
        started = request.saga_id not in self.sagas
        saga = saga_pb2.Saga(saga_id=request.saga_id, state=saga_pb2.Saga.STATE_RUNNING)
        return api.StartSagaResponse(saga=self.sagas.setdefault(request.saga_id, saga), started=started)

    async def GetSaga(self, request: api.GetSagaRequest, context: Context) -> api.GetSagaResponse:
        """Answers the saga."""
        await self._note("GetSaga", request, context)
        return api.GetSagaResponse(saga=self.sagas[request.saga_id])

    async def ListSagas(self, request: api.ListSagasRequest, context: Context) -> api.ListSagasResponse:
        """Answers the sagas page by page; the token is the number of sagas before."""
        await self._note("ListSagas", request, context)
        begin, size = int(request.page_token or 0), request.page_size or 100
        found = [saga for saga in self.sagas.values() if not request.states or saga.state in request.states]
        more = str(begin + size) if begin + size < len(found) else ""
        return api.ListSagasResponse(sagas=found[begin : begin + size], next_page_token=more)

    async def WaitSaga(self, request: api.WaitSagaRequest, context: Context) -> api.WaitSagaResponse:
        """Answers once the saga has ended, or when the time is over."""
        await self._note("WaitSaga", request, context)
        self.waiting.set()
        if request.saga_id not in self.sagas:
            await refuse(context, Refusal(grpc.StatusCode.NOT_FOUND, details=[error_info("SAGA_NOT_FOUND")]))
        try:
            async with asyncio.timeout(request.wait_timeout.ToTimedelta().total_seconds()), self._moved:
                await self._moved.wait_for(lambda: self.sagas[request.saga_id].state != saga_pb2.Saga.STATE_RUNNING)
        except TimeoutError:
            pass
        return api.WaitSagaResponse(saga=self.sagas[request.saga_id])

    async def WatchSaga(self, request: api.WatchSagaRequest, context: Any) -> AsyncGenerator[api.WatchSagaResponse]:
        """Answers the saga, then each time it was moved, until it has committed."""
        await self._note("WatchSaga", request, context)
        if request.saga_id not in self.sagas:
            await refuse(context, Refusal(grpc.StatusCode.NOT_FOUND, details=[error_info("SAGA_NOT_FOUND")]))
        known = request.known_write_count
        self.watching += 1
        try:
            while True:
                async with self._moved:
                    while (saga := self.sagas[request.saga_id]).write_count == known:
                        await self._moved.wait()
                known = saga.write_count
                yield api.WatchSagaResponse(saga=saga)
                if saga.state == saga_pb2.Saga.STATE_COMMITTED:
                    return
        finally:
            self.watching -= 1

    async def AbortSaga(self, request: api.AbortSagaRequest, context: Context) -> api.AbortSagaResponse:
        """Marks the saga."""
        await self._note("AbortSaga", request, context)
        self.sagas[request.saga_id].abort_requested = True
        return api.AbortSagaResponse(saga=self.sagas[request.saga_id])

    async def _note(self, method: str, request: Message, context: Context) -> None:
        metadata = dict(context.invocation_metadata() or ())
        self.asked.append(Asked(method, request, metadata, context.time_remaining()))
        if self.refusals:
            await refuse(context, self.refusals.popleft())


async def refuse(context: Context, refusal: Refusal) -> None:
    """Ends the call with an error and its details."""
    status = status_pb2.Status(code=code_pb2.Code.Value(refusal.code.name), message=refusal.message)
    for detail in refusal.details:
        status.details.add().Pack(detail)
    await context.abort_with_status(rpc_status.to_status(status))  # pyright: ignore[reportUnknownMemberType]  # as above


@asynccontextmanager
async def serving(
    coordinator: SagaServiceServicer, *, port: int = 0, listed: StartServiceServicer | None = None
) -> AsyncGenerator[str]:
    """Serves it on loopback, with starts in lists or without; the address. Calls under way are cut off at the end, as
    by a process that is killed.
    """
    server = grpc.aio.server()
    add_SagaServiceServicer_to_server(coordinator, server)
    if listed is not None:
        add_StartServiceServicer_to_server(listed, server)
    bound = server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    try:
        yield f"127.0.0.1:{bound}"
    finally:
        await server.stop(None)
