"""A participant without the SDK: it answers with whatever bytes, codes and trailers a test plans for it."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import grpc

from scenario.v1.scenario_pb2 import DoResponse, FindResponse, UndoResponse
from tests.unit.grpc_api.samples import SERVICE

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping

GOOD = {
    "Do": DoResponse(effect_id="e-1", name="a").SerializeToString(),
    "DoFindable": FindResponse(effect_id="e-1", name="a").SerializeToString(),
    "Find": FindResponse(effect_id="e-1", name="a").SerializeToString(),
    "Undo": UndoResponse().SerializeToString(),
}
"""What each method answers when nothing is planned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One answer: a code with its text, or a body; trailers; how long it takes, or what it waits for."""

    body: bytes | None = None
    code: grpc.StatusCode = grpc.StatusCode.OK
    text: str = ""
    trailers: tuple[tuple[str, str | bytes], ...] = ()
    delay_s: float = 0.0
    until: asyncio.Event | None = None
    nothing: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One call as it came in."""

    method: str
    metadata: dict[str, str]
    request: bytes

    @property
    def side(self) -> str:
        """Step and direction, such as "a/action"."""
        return f"{self.metadata['amends-step']}/{self.metadata['amends-direction']}"


@dataclass(slots=True)
class RawSteps:
    """Answers by plan: "step/direction" maps to one reply for each call; the last holds for all further ones."""

    plan: dict[str, list[Reply]] = field(default_factory=dict[str, list[Reply]])
    seen: list[Seen] = field(default_factory=list[Seen])
    address: str = ""
    _counts: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))

    def calls(self, side: str) -> list[Seen]:
        """The calls of one step and direction so far."""
        return [each for each in self.seen if each.side == side]

    def has_seen(self, count: int) -> bool:
        """Whether so many calls came in."""
        return len(self.seen) >= count

    # Any: grpcio's stubs describe handlers of the synchronous server only, and bytes pass through as they are.
    def handler(self, method: str) -> Callable[[bytes, Any], Any]:
        """What serves one method."""

        async def handle(request: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> bytes | None:
            metadata = {key: value for key, value in context.invocation_metadata() or () if isinstance(value, str)}
            seen = Seen(method=method, metadata=metadata, request=request)
            self.seen.append(seen)
            return await self._answer(seen, context)

        return handle

    def reply_to(self, seen: Seen) -> Reply:
        """What the plan says; all is well where it says nothing."""
        replies = self.plan.get(seen.side)
        if not replies:
            return Reply()
        key = f"{seen.metadata['amends-saga-id']}/{seen.side}"
        reply = replies[min(self._counts[key], len(replies) - 1)]
        self._counts[key] += 1
        return reply

    async def _answer(self, seen: Seen, context: grpc.aio.ServicerContext[Any, Any]) -> bytes | None:
        reply = self.reply_to(seen)
        if reply.until is not None:
            await reply.until.wait()
        with suppress(TimeoutError):
            if reply.delay_s:
                await asyncio.wait_for(asyncio.Event().wait(), reply.delay_s)
        if reply.code is not grpc.StatusCode.OK:
            await context.abort(reply.code, reply.text, reply.trailers)
        context.set_trailing_metadata(reply.trailers)
        if reply.nothing:
            return None
        return GOOD[seen.method] if reply.body is None else reply.body


@asynccontextmanager
async def raw_steps(plan: Mapping[str, list[Reply]] | None = None, *, port: int = 0) -> AsyncGenerator[RawSteps]:
    """A raw participant that listens; "a" plans the action of step a, "undo_a" its compensation, "find_a" its lookup.
    It isn't announced yet.
    """
    steps = RawSteps(plan={_side(name): replies for name, replies in (plan or {}).items()})
    async with served(steps, port=port):
        yield steps


@asynccontextmanager
async def served(steps: RawSteps, *, port: int = 0) -> AsyncGenerator[None]:
    """Let a raw participant listen at `steps.address`."""
    server = grpc.aio.server(options=(("grpc.so_reuseport", 0),))
    handlers: dict[str, Any] = {
        method: grpc.unary_unary_rpc_method_handler(steps.handler(method)) for method in sorted(GOOD)
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    steps.address = f"127.0.0.1:{server.add_insecure_port(f'127.0.0.1:{port}')}"
    await server.start()
    try:
        yield
    finally:
        await server.stop(0)


def _side(name: str) -> str:
    for prefix, direction in (("undo_", "compensation"), ("find_", "lookup")):
        if name.startswith(prefix):
            return f"{name.removeprefix(prefix)}/{direction}"
    return f"{name}/action"
