"""A participant behind a real server whose handlers are barred, its database, and calls as a coordinator makes them.

A test says what a handler's block does, as a plain function over a `Session`: an `async def` handler runs it below its
`AsyncSession`, a plain `def` handler as it is. So every promise is written once for both.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias, TypeVar

import grpc
from google.protobuf.message import Message
from sqlalchemy import Column, Engine, Integer, MetaData, Table, Text, create_engine, select, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, sessionmaker

from amends import ParticipantServer, barrier, current_step
from tests.engines import closed
from timeline.v1 import timeline_pb2 as pb
from timeline.v1.timeline_pb2_grpc import BarrierServiceServicer

SERVICE = "timeline.v1.BarrierService"
NO_COORDINATOR = "127.0.0.1:1"

WORK = MetaData()
EFFECTS = Table("effect", WORK, Column("id", Integer, primary_key=True), Column("name", Text, nullable=False))

Body: TypeAlias = Callable[[Session], Message]
Pause: TypeAlias = Callable[[], Awaitable[None]]
AsyncContext = grpc.aio.ServicerContext[Any, Any]  # Any: these handlers ask it for nothing
ResponseT = TypeVar("ResponseT", bound=Message)
Pairs: TypeAlias = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came back from a call."""

    code: grpc.StatusCode
    text: str
    trailers: dict[str, str | bytes]
    response: bytes = b""

    @property
    def effect_id(self) -> str:
        """Of an action's or a lookup's response."""
        assert self.code is grpc.StatusCode.OK, self
        return pb.DoResponse.FromString(self.response).effect_id

    @property
    def sealed(self) -> bool:
        """Whether it promises that the key never runs from now on."""
        return self.trailers.get("amends-sealed") == "1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A step of a saga, and the calls of it that a coordinator would make."""

    saga_id: str
    kind: str = "compensatable"
    target: str = "same"
    ledger: str = "default"
    step_time: datetime = field(default_factory=lambda: datetime.now(UTC))

    def metadata(self, direction: str, attempt: int = 1) -> Pairs:
        """What is sent with a call."""
        common = {
            "idempotency-key": f"{self.saga_id}/do/{direction}",
            "amends-key-uuid": "8a6e0804-2bd0-5672-b79d-d97027f9071a",
            "amends-ledger": self.ledger,
            "amends-saga-id": self.saga_id,
            "amends-step": "do",
            "amends-kind": self.kind,
            "amends-direction": direction,
            "amends-attempt": str(attempt),
            "amends-step-time": self.step_time.isoformat(),
        }
        action = {"amends-action-key": f"{self.saga_id}/do/action"} if direction != "action" else {}
        target = {"amends-action-target": self.target} if direction == "compensation" else {}
        return tuple({**common, **action, **target}.items())


async def at_once() -> None:
    """No pause."""


class Held:
    """A pause that says when it was reached and ends when it is told to."""

    def __init__(self) -> None:
        self.reached, self.go_on = asyncio.Event(), asyncio.Event()

    async def __call__(self) -> None:
        self.reached.set()
        await self.go_on.wait()


def write_effect(session: Session) -> pb.DoResponse:
    """An action's work: one row, whose id it answers."""
    effect_id = session.execute(EFFECTS.insert().values(name=current_step().saga_id).returning(EFFECTS.c.id))
    return pb.DoResponse(effect_id=str(effect_id.scalar_one()))


def take_effect_out(session: Session) -> pb.UndoResponse:
    """A compensation's work: it marks what the action answered as undone, however often it is called."""
    done = current_step().action_response
    name = f"undone {done.effect_id}" if isinstance(done, pb.DoResponse) else "undone elsewhere"
    session.execute(EFFECTS.insert().values(name=name))
    return pb.UndoResponse()


@dataclass(slots=True)
class Handlers:
    """What the handlers do; a test changes it.

    Attributes:
        do, undo: what the blocks do.
        pause: what is waited for after the block, before the return.
        swallowed: what is caught around the block; the handler then returns an empty response.
        blocks: how many there are in one call.
        blocking: what an `async def` handler opens a plain block with instead of its own.
        begun: how many actions and compensations have reached their handler.
        aborted: what the call is aborted with through gRPC's own context, after the block.
    """

    do: Body = write_effect
    undo: Body = take_effect_out
    pause: Pause = at_once
    swallowed: tuple[type[BaseException], ...] = ()
    blocks: int = 1
    aborted: grpc.StatusCode | None = None
    blocking: sessionmaker[Session] | None = None
    begun: int = 0


class AsyncBarred(BarrierServiceServicer):
    """The handlers on the event loop."""

    def __init__(self, handlers: Handlers, sessions: async_sessionmaker[AsyncSession]) -> None:
        self._handlers, self.sessions = handlers, sessions

    async def Do(self, request: pb.DoRequest, context: AsyncContext) -> pb.DoResponse:
        return await self._guarded(self._handlers.do, pb.DoResponse, context)

    async def Undo(self, request: pb.UndoRequest, context: AsyncContext) -> pb.UndoResponse:
        return await self._guarded(self._handlers.undo, pb.UndoResponse, context)

    async def Find(self, request: pb.FindRequest, context: AsyncContext) -> pb.DoResponse:
        try:
            return await barrier.lookup(self.sessions, pb.DoResponse)
        except self._handlers.swallowed:
            return pb.DoResponse()

    async def _guarded(self, body: Body, response: type[ResponseT], context: AsyncContext) -> ResponseT:
        self._handlers.begun += 1
        returned: Message = response()
        try:
            if self._handlers.blocking is not None:
                with barrier.transaction(self._handlers.blocking) as blocking:
                    return response.FromString(body(blocking).SerializeToString())
            for _ in range(self._handlers.blocks):
                async with barrier.transaction(self.sessions) as session:
                    returned = await session.run_sync(body)
        except self._handlers.swallowed:
            return response()
        if self._handlers.aborted is not None:
            await context.abort(self._handlers.aborted, "too much")
        await self._handlers.pause()
        assert isinstance(returned, response)
        return returned


class PlainBarred(BarrierServiceServicer):
    """The handlers in threads. Any: the stubs that are generated here know asynchronous handlers only."""

    def __init__(self, handlers: Handlers, sessions: sessionmaker[Session]) -> None:
        self._handlers, self.sessions = handlers, sessions
        self._loop = asyncio.get_running_loop()

    def Do(self, request: Any, context: Any) -> Any:
        return self._guarded(self._handlers.do, pb.DoResponse, context)

    def Undo(self, request: Any, context: Any) -> Any:
        return self._guarded(self._handlers.undo, pb.UndoResponse, context)

    def Find(self, request: Any, context: Any) -> Any:
        try:
            return barrier.lookup(self.sessions, pb.DoResponse)
        except self._handlers.swallowed:
            return pb.DoResponse()

    def _guarded(self, body: Body, response: type[ResponseT], context: grpc.ServicerContext) -> ResponseT:
        self._handlers.begun += 1
        returned: Message = response()
        try:
            for _ in range(self._handlers.blocks):
                with barrier.transaction(self.sessions) as session:
                    returned = body(session)
        except self._handlers.swallowed:
            return response()
        if self._handlers.aborted is not None:
            context.abort(self._handlers.aborted, "too much")
        asyncio.run_coroutine_threadsafe(_awaited(self._handlers.pause), self._loop).result()
        assert isinstance(returned, response)
        return returned


async def _awaited(pause: Pause) -> None:
    await pause()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rig:
    """A database, and one kind of session to it.

    Attributes:
        bound: the sessions' engine.
        outside: an outsider's engine, which sees what is durable.
        sessions: what the barrier is given.
    """

    bound: Engine | AsyncEngine
    outside: Engine
    sessions: async_sessionmaker[AsyncSession] | sessionmaker[Session]

    @property
    def engine(self) -> Engine:
        """What the sessions are bound to, as a synchronous engine."""
        return self.bound if isinstance(self.bound, Engine) else self.bound.sync_engine

    def autocommitting(self) -> Engine | AsyncEngine:
        """The sessions' engine, in AUTOCOMMIT."""
        return self.bound.execution_options(isolation_level="AUTOCOMMIT")

    @property
    def on_postgres(self) -> bool:
        """Whether it is PostgreSQL."""
        return self.outside.dialect.name == "postgresql"

    @property
    def plain(self) -> bool:
        """Whether its handlers are plain functions."""
        return isinstance(self.sessions, sessionmaker)

    def servicer(self, handlers: Handlers) -> BarrierServiceServicer:
        """The handlers of this kind."""
        if isinstance(self.sessions, sessionmaker):
            return PlainBarred(handlers, self.sessions)
        return AsyncBarred(handlers, self.sessions)

    async def purge(self, *, older_than: timedelta, batch_size: int = 1_000) -> int:
        """Purge through the sessions."""
        if isinstance(self.sessions, sessionmaker):
            return await asyncio.to_thread(barrier.purge, self.sessions, older_than=older_than, batch_size=batch_size)
        return await barrier.purge(self.sessions, older_than=older_than, batch_size=batch_size)

    def effects(self) -> list[str]:
        """The names of all effects that are durable."""
        with self.outside.begin() as connection:
            return list(connection.execute(select(EFFECTS.c.name).order_by(EFFECTS.c.id)).scalars())

    def somebody_waits_for_a_lock(self) -> bool:
        """On PostgreSQL: whether a session does."""
        with self.outside.begin() as connection:
            return bool(connection.execute(text("SELECT count(*) FROM pg_locks WHERE NOT granted")).scalar_one())

    def close_all_connections(self) -> None:
        """On PostgreSQL: end everybody else's session, and wait until it is gone."""
        with self.outside.begin() as connection:
            connection.execute(
                text(
                    "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
                    "WHERE datname = current_database() AND pid <> pg_backend_pid()"
                )
            )

    def rows(self) -> dict[str, str]:
        """The barrier's rows: saga/step/direction -> state."""
        table = barrier.TABLES.tables["amends_barrier"]
        with self.outside.begin() as connection:
            return {row.key: row.state for row in connection.execute(select(table.c.key, table.c.state))}


@asynccontextmanager
async def rig_at(url: str, *, plain: bool, **pool: Any) -> AsyncGenerator[Rig]:  # Any: whatever an engine takes
    """A rig on a database that has its tables; `url` is for SQLAlchemy's synchronous engines."""
    outside = create_engine(url, pool_pre_ping=True)
    bound = (
        create_engine(url, **pool)
        if plain
        else create_async_engine(url.replace("sqlite:", "sqlite+aiosqlite:"), **pool)
    )
    sessions = sessionmaker(bound) if isinstance(bound, Engine) else async_sessionmaker(bound)
    try:
        yield Rig(bound=bound, outside=outside, sessions=sessions)
    finally:
        await closed(bound)
        outside.dispose()


def make_tables(engine: Engine) -> None:
    """Everything that a rig's database has."""
    WORK.create_all(engine)
    barrier.TABLES.create_all(engine)


class Stage:
    """The participant, served, and calls of it."""

    def __init__(self, rig: Rig, channel: grpc.aio.Channel, handlers: Handlers) -> None:
        self.rig, self.handlers = rig, handlers
        self._channel = channel

    async def do(self, step: Step, *, name: str = "a", timeout_s: float = 10, direction: str = "action") -> Answer:
        """Call the action."""
        return await self._call("Do", pb.DoRequest(name=name), step.metadata(direction), timeout_s)

    async def undo(self, step: Step, *, timeout_s: float = 10) -> Answer:
        """Call the compensation."""
        return await self._call("Undo", pb.UndoRequest(name="a"), step.metadata("compensation"), timeout_s)

    async def find(self, step: Step, *, timeout_s: float = 10, direction: str = "lookup") -> Answer:
        """Call the lookup."""
        return await self._call("Find", pb.FindRequest(name="a"), step.metadata(direction), timeout_s)

    async def _call(self, method: str, request: Message, metadata: Pairs, timeout_s: float) -> Answer:
        """Call with bytes, as the coordinator does."""
        stub: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = self._channel.unary_unary(f"/{SERVICE}/{method}")
        call = stub(request.SerializeToString(), metadata=metadata, timeout=timeout_s)
        try:
            response = await call
        except grpc.aio.AioRpcError as error:
            trailers = _by_key(error.trailing_metadata())
            return Answer(code=error.code(), text=error.details() or "", trailers=trailers)
        trailers = _by_key(await call.trailing_metadata())
        return Answer(code=grpc.StatusCode.OK, text="", trailers=trailers, response=response)


def _by_key(metadata: grpc.aio.Metadata | None) -> dict[str, str | bytes]:
    return {key: value for key, value in metadata or ()}  # noqa: C416 - mypy takes it for a mapping, which it is not


@asynccontextmanager
async def staged(rig: Rig) -> AsyncGenerator[Stage]:
    """The participant, served until the block ends. Its action writes an effect, its compensation takes it out."""
    handlers = Handlers()
    server = ParticipantServer("barred", coordinator=NO_COORDINATOR, stop_grace_s=0)
    server.add(rig.servicer(handlers))
    async with server, grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        yield Stage(rig, channel, handlers)


def called(rig: Rig, channel: grpc.aio.Channel) -> Stage:
    """Calls of a participant that is served elsewhere."""
    return Stage(rig, channel, Handlers())
