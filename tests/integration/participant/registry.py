"""A registry in a few lines that stands in for the coordinator: it keeps what participants announce."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable
from contextlib import asynccontextmanager
from datetime import timedelta

import grpc
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped] # ships stubs but no py.typed

from amends.v1.registry_service_pb2 import (
    DeregisterParticipantRequest,
    DeregisterParticipantResponse,
    ListParticipantsRequest,
    ListParticipantsResponse,
    RegisterParticipantRequest,
    RegisterParticipantResponse,
)
from amends.v1.registry_service_pb2_grpc import RegistryServiceServicer, add_RegistryServiceServicer_to_server

LONG = timedelta(seconds=30)


class Registry(RegistryServiceServicer):
    """Accepts every announcement, or refuses all of them.

    Attributes:
        registered, deregistered: what came, in order.
        refusal: what announcements are answered with instead of being accepted.
    """

    def __init__(self, *, lease: timedelta = LONG) -> None:
        self.registered: asyncio.Queue[RegisterParticipantRequest] = asyncio.Queue()
        self.deregistered: asyncio.Queue[DeregisterParticipantRequest] = asyncio.Queue()
        self.refusal: tuple[grpc.StatusCode, str, str] | None = None
        self._lease = lease

    async def RegisterParticipant(
        self,
        request: RegisterParticipantRequest,
        context: grpc.aio.ServicerContext[RegisterParticipantRequest, Awaitable[RegisterParticipantResponse]],
    ) -> RegisterParticipantResponse:
        self.registered.put_nowait(request)
        if self.refusal is not None:
            code, message, reason = self.refusal
            await context.abort(code, message, (("grpc-status-details-bin", _details(code, message, reason)),))
        response = RegisterParticipantResponse()
        response.lease_timeout.FromTimedelta(self._lease)
        return response

    async def DeregisterParticipant(
        self,
        request: DeregisterParticipantRequest,
        context: grpc.aio.ServicerContext[DeregisterParticipantRequest, Awaitable[DeregisterParticipantResponse]],
    ) -> DeregisterParticipantResponse:
        self.deregistered.put_nowait(request)
        return DeregisterParticipantResponse()

    async def ListParticipants(
        self,
        request: ListParticipantsRequest,
        context: grpc.aio.ServicerContext[ListParticipantsRequest, Awaitable[ListParticipantsResponse]],
    ) -> ListParticipantsResponse:
        return ListParticipantsResponse()

    async def next_registered(self) -> RegisterParticipantRequest:
        """The next announcement, within ten seconds."""
        async with asyncio.timeout(10):
            return await self.registered.get()

    async def next_deregistered(self) -> DeregisterParticipantRequest:
        """The next instance taken out, within ten seconds."""
        async with asyncio.timeout(10):
            return await self.deregistered.get()


@asynccontextmanager
async def serving_registry(registry: Registry, *, port: int = 0) -> AsyncGenerator[int]:
    """Serves the registry for the block; its port."""
    server = grpc.aio.server(options=(("grpc.so_reuseport", 0),))
    add_RegistryServiceServicer_to_server(registry, server)
    bound = server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    try:
        yield bound
    finally:
        await server.stop(None)


def _details(code: grpc.StatusCode, message: str, reason: str) -> bytes:
    packed = any_pb2.Any()
    packed.Pack(error_details_pb2.ErrorInfo(domain="amends", reason=reason))
    number: int = code.value[0]
    return bytes(status_pb2.Status(code=number, message=message, details=[packed]).SerializeToString())
