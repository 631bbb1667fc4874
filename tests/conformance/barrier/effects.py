"""A payments service whose handlers are effects at a provider in memory, scripted by a test, and called over real gRPC.

Its handlers exist twice, for the event loop and for threads; both do the same.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeAlias

import grpc
from google.protobuf.message import Message
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.orm import sessionmaker

from amends import ParticipantServer, Rejected, barrier, current_step
from amends.barrier import Effect
from amends.keys import key_uuid
from shop.payments.v1.payments_pb2 import (
    AuthorizeRequest,
    AuthorizeResponse,
    CaptureRequest,
    CaptureResponse,
    FindAuthorizationRequest,
    VoidRequest,
    VoidResponse,
)
from shop.payments.v1.payments_pb2_grpc import PaymentsServiceServicer, PaymentsServiceStub
from tests.engines import closed

# Nothing listens there; a participant serves all the same while it looks for its coordinator.
NO_COORDINATOR = "127.0.0.1:1"
CALL_TIMEOUT_S = 20.0

Context: TypeAlias = grpc.aio.ServicerContext[Any, Awaitable[Any]]  # Any: the handlers don't look at it


@dataclass(slots=True)
class Provider:
    """Another company: does its part once per key, and knows what it did.

    Attributes:
        made: ids by the key that they were made with.
        undone: the keys whose work was undone.
        told: what each body was told by the barrier, in order.
        before: what the bodies to come raise before they ask it, in order; None: nothing.
        after: the same, when it has done its part.
        abort_reason: the action asks for the saga to be aborted.
    """

    made: dict[str, str] = field(default_factory=dict[str, str])
    undone: set[str] = field(default_factory=set[str])
    told: list[Effect] = field(default_factory=list[Effect])
    before: list[BaseException | None] = field(default_factory=list[BaseException | None])
    after: list[BaseException | None] = field(default_factory=list[BaseException | None])
    abort_reason: str = ""

    def authorize(self, effect: Effect) -> AuthorizeResponse:
        """The body of the action."""
        self._begin(effect)
        made = self.made.setdefault(effect.key_uuid, f"auth-{len(self.made) + 1}")
        if self.abort_reason:
            current_step().abort_saga(self.abort_reason)
        self._end()
        return AuthorizeResponse(authorization_id=made)

    def void(self, effect: Effect) -> VoidResponse:
        """The body of the compensation."""
        self._begin(effect)
        self.undone.add(effect.action_key_uuid)
        self._end()
        return VoidResponse()

    def find(self, effect: Effect) -> AuthorizeResponse:
        """The body of the lookup."""
        self._begin(effect)
        if effect.action_key_uuid not in self.made:
            raise Rejected("not yet", reason="NOT_YET", code=grpc.StatusCode.NOT_FOUND)
        return AuthorizeResponse(authorization_id=self.made[effect.action_key_uuid])

    def _begin(self, effect: Effect) -> None:
        self.told.append(effect)
        _next(self.before)

    def _end(self) -> None:
        _next(self.after)


def _next(faults: list[BaseException | None]) -> None:
    fault = faults.pop(0) if faults else None
    if fault is not None:
        raise fault


class AsyncPayments(PaymentsServiceServicer):
    """Handlers on the event loop."""

    def __init__(self, sessions: async_sessionmaker[Any], provider: Provider) -> None:  # Any: any kind of session
        self.sessions, self.provider = sessions, provider

    async def Authorize(self, request: AuthorizeRequest, context: Context) -> AuthorizeResponse:
        async with barrier.effect(self.sessions) as effect:
            return self.provider.authorize(effect)

    async def Void(self, request: VoidRequest, context: Context) -> VoidResponse:
        async with barrier.effect(self.sessions) as effect:
            return self.provider.void(effect)

    async def FindAuthorization(self, request: FindAuthorizationRequest, context: Context) -> AuthorizeResponse:
        async with barrier.effect(self.sessions) as effect:
            return self.provider.find(effect)

    async def Capture(self, request: CaptureRequest, context: Context) -> CaptureResponse:
        """Does nothing."""
        return CaptureResponse()


class SyncPayments(PaymentsServiceServicer):
    """Handlers in threads. The stubs are made for those on the loop, hence the ignores."""

    def __init__(self, sessions: sessionmaker[Any], provider: Provider) -> None:  # Any: any kind of session
        self.sessions, self.provider = sessions, provider

    def Authorize(self, request: AuthorizeRequest, context: object) -> AuthorizeResponse:  # type: ignore[override] # a plain one
        with barrier.effect(self.sessions) as effect:
            return self.provider.authorize(effect)

    def Void(self, request: VoidRequest, context: object) -> VoidResponse:  # type: ignore[override] # a plain one
        with barrier.effect(self.sessions) as effect:
            return self.provider.void(effect)

    def FindAuthorization(  # type: ignore[override] # a plain one
        self, request: FindAuthorizationRequest, context: object
    ) -> AuthorizeResponse:
        with barrier.effect(self.sessions) as effect:
            return self.provider.find(effect)

    def Capture(self, request: CaptureRequest, context: object) -> CaptureResponse:  # type: ignore[override] # a plain one
        """Does nothing."""
        return CaptureResponse()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a call ended: its code, its response, and our trailers."""

    code: grpc.StatusCode
    response: Message | None = None
    text: str = ""
    trailers: dict[str, str | bytes] = field(default_factory=dict[str, str | bytes])

    @property
    def sealed(self) -> bool:
        """Whether the participant promises never to run the key."""
        return self.trailers.get("amends-sealed") == "1"

    def __str__(self) -> str:
        return f"{self.code.name}{' sealed' if self.sealed else ''}"


def _by_name(metadata: Any) -> dict[str, str | bytes]:  # Any: the stubs' Metadata is no iterable of pairs to checkers
    return {key: value for key, value in metadata or ()}  # noqa: C416 - dict() would take it for a mapping


class Caller:
    """Calls the service as a coordinator does, for one saga with one step."""

    def __init__(self, channel: grpc.aio.Channel, *, saga_id: str, kind: str = "compensatable") -> None:
        self._stub, self._saga_id, self._kind = PaymentsServiceStub(channel), saga_id, kind
        self.action_key = f"{saga_id}/authorize/action"
        self.action_key_uuid = str(key_uuid("default", self.action_key))

    async def act(self, customer_id: str = "ada", **others: str) -> Ended:
        """Call the action."""
        return await self._call(self._stub.Authorize, AuthorizeRequest(customer_id=customer_id), "action", others)

    async def undo(self, target: str = "same", **others: str) -> Ended:
        """Call the compensation."""
        others = {"amends_action_target": target, **others}
        return await self._call(self._stub.Void, VoidRequest(), "compensation", others)

    async def look_up(self, **others: str) -> Ended:
        """Call the lookup."""
        return await self._call(self._stub.FindAuthorization, FindAuthorizationRequest(), "lookup", others)

    def metadata(self, direction: str, others: dict[str, str]) -> tuple[tuple[str, str], ...]:
        """What a coordinator sends."""
        key = f"{self._saga_id}/authorize/{direction}"
        of_the_action = {"amends-action-key": self.action_key, "amends-action-key-uuid": self.action_key_uuid}
        metadata = {
            "idempotency-key": key,
            "amends-key-uuid": str(key_uuid("default", key)),
            "amends-ledger": "default",
            "amends-saga-id": self._saga_id,
            "amends-step": "authorize",
            "amends-kind": self._kind,
            "amends-direction": direction,
            "amends-attempt": "1",
            **(of_the_action if direction != "action" else {}),
        }
        return tuple({**metadata, **{name.replace("_", "-"): value for name, value in others.items()}}.items())

    # Any: the stubs of three methods, each with types of its own.
    async def _call(self, method: Any, request: Message, direction: str, others: dict[str, str]) -> Ended:
        call = method(request, metadata=self.metadata(direction, others), timeout=CALL_TIMEOUT_S)
        try:
            response = await call
        except grpc.aio.AioRpcError as no:
            trailers = _by_name(no.trailing_metadata())
            return Ended(code=no.code(), text=no.details() or "", trailers=trailers)
        trailers = _by_name(await call.trailing_metadata())
        return Ended(code=grpc.StatusCode.OK, response=response, trailers=trailers)


@dataclass(slots=True)
class Rig:
    """A database, a provider, and what serves them.

    Attributes:
        url: of the database, without a driver's name.
        threaded: whether handlers run in threads.
        provider: the other company.
        saga_id: one that nobody has used yet.
    """

    url: str
    threaded: bool
    provider: Provider = field(default_factory=Provider)
    saga_id: str = field(default_factory=lambda: f"order-{uuid.uuid4()}")

    @asynccontextmanager
    async def serving(self, servicer: object | None = None, *, kind: str = "compensatable") -> AsyncGenerator[Caller]:
        """A server of its own, as another process would be, and somebody who calls it."""
        server = ParticipantServer("payments", coordinator=NO_COORDINATOR, port=0)
        async with self.sessions() as sessions:
            server.add(servicer or self.servicer(sessions))
            async with server, grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
                yield Caller(channel, saga_id=self.saga_id, kind=kind)

    def servicer(self, sessions: async_sessionmaker[Any] | sessionmaker[Any]) -> object:  # Any: any kind of session
        """Handlers of the kind that the rig is about."""
        if isinstance(sessions, async_sessionmaker):
            return AsyncPayments(sessions, self.provider)
        return SyncPayments(sessions, self.provider)

    @asynccontextmanager
    async def sessions(self) -> AsyncGenerator[async_sessionmaker[Any] | sessionmaker[Any]]:  # Any: any kind
        """Sessions for handlers of the kind that the rig is about."""
        if self.threaded:
            engine = create_engine(with_driver(self.url))
            try:
                yield sessionmaker(engine)
            finally:
                await closed(engine)
        else:
            async_engine = create_async_engine(with_driver(self.url, asynchronous=True))
            try:
                yield async_sessionmaker(async_engine)
            finally:
                await closed(async_engine)

    async def purge(self) -> None:
        """Forget everything older than two hours, as an operator has done it."""
        async with self.sessions() as sessions:
            if isinstance(sessions, async_sessionmaker):
                await barrier.purge(sessions, older_than=timedelta(hours=2))
            else:
                barrier.purge(sessions, older_than=timedelta(hours=2))

    def states(self) -> dict[str, str]:
        """The state of each of the saga's rows, by direction."""
        engine = create_engine(with_driver(self.url))
        try:
            with engine.connect() as connection:
                asked = text("SELECT direction, state FROM amends_barrier WHERE saga = :saga")
                return {row.direction: row.state for row in connection.execute(asked, {"saga": self.saga_id})}
        finally:
            engine.dispose()


def with_driver(url: str, *, asynchronous: bool = False) -> str:
    """The database's URL as SQLAlchemy takes it."""
    database = url.partition("://")[2]
    if url.startswith("sqlite"):
        return f"sqlite{'+aiosqlite' if asynchronous else ''}://{database}"
    return f"postgresql+psycopg://{database}"
