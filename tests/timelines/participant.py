"""A participant without the SDK that serves the same methods under three promises, and does what a test tells it.

What it does with a call is a list of turns for each side ("a/action", "a/compensation", "a/lookup"), or for that side
of one saga ("s-1/a/action"): one for each call that reaches its work, the last of which holds for all further ones.
Where nothing is planned `chance` decides, if there is one. Its journal, outside the system under test, has the effects;
what the coordinator sent stands there too, written by the network (network.py).
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import grpc

from tests.scenarios.journal import Entry, Journal, now_s
from tests.timelines.books import Asked, BarrierBooks, Books, Code, KeyBooks, PlainBooks, Said
from timeline.v1 import timeline_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

Context = grpc.aio.ServicerContext[Any, Any]  # Any: bytes pass through as they are
METHODS = ("Do", "Undo", "Find")
BARRIER, KEY, PLAIN = (f"timeline.v1.{name}Service" for name in ("Barrier", "Key", "Plain"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What one call does: wait for `before`, then do its work or say `instead`; then wait for `after`, and answer, or
    say `lost` instead although the work is done. `abort`: it asks for the saga to be rolled back.
    """

    instead: Said | None = None
    lost: Said | None = None
    abort: str = ""
    before: asyncio.Event | None = None
    after: asyncio.Event | None = None


OK = Turn()
REFUSE = Turn(instead=Said(code=Code.FAILED_PRECONDITION, text="the test says no"))
FAIL = Turn(instead=Said(code=Code.UNAVAILABLE, text="out of order, and nothing was done"))
LOSE = Turn(lost=Said(code=Code.UNAVAILABLE, text="done, but the answer is lost"))
MISSING = Turn(instead=Said(code=Code.NOT_FOUND, text="there is nothing of that"))


@dataclass(slots=True)
class Participant:
    """See the module."""

    journal: Journal
    turns: dict[str, list[Turn]] = field(default_factory=dict[str, list[Turn]])
    chance: Callable[[str], Turn] | None = None
    address: str = ""
    barrier: BarrierBooks = field(default_factory=BarrierBooks)
    key: KeyBooks = field(default_factory=KeyBooks)
    plain: PlainBooks = field(default_factory=PlainBooks)
    arrived: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    worked: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))

    def does(self, side: str, *turns: Turn) -> None:
        """Say what the calls of one side do from now on."""
        self.turns[side] = list(turns)
        self.worked = defaultdict(int, {key: n for key, n in self.worked.items() if not key.endswith(f"/{side}")})

    def effects(self, step: str) -> int:
        """How often a step's action took effect, less how often it was undone."""
        return len(self._effects(step, "action")) - len(self._effects(step, "compensation"))

    def ever(self, step: str) -> int:
        """How often a step's action ever took effect."""
        return len(self._effects(step, "action"))

    def _effects(self, step: str, direction: str) -> list[Entry]:
        return [entry for entry in self.journal.effects(direction) if entry.step == step]

    def books(self, service: str) -> Books:
        """What is remembered under one promise; each service is a participant of its own in this."""
        found: dict[str, Books] = {BARRIER: self.barrier, KEY: self.key, PLAIN: self.plain}
        return found[service]

    def handler(self, service: str, method: str) -> Callable[[bytes, Context], Any]:
        """What serves one method."""

        async def handle(request: bytes, context: Context) -> bytes:
            metadata = {key: value for key, value in context.invocation_metadata() or () if isinstance(value, str)}
            call = _Call(self, service, metadata, request)
            self.arrived[call.side] += 1
            said, turn = await call.answer()
            if turn is not None and turn.after is not None:
                await turn.after.wait()
            if turn is not None and turn.lost is not None:
                said = turn.lost
            if not said.ok:
                await context.abort(said.code, said.text, said.trailers)
            if said.abort:
                context.set_trailing_metadata((("amends-abort-bin", said.abort.encode()),))
            return _response(method, said)

        return handle


@dataclass(slots=True)
class _Call:
    participant: Participant
    service: str
    metadata: dict[str, str]
    request: bytes
    turn: Turn | None = None

    @property
    def side(self) -> str:
        return f"{self.metadata['amends-step']}/{self.metadata['amends-direction']}"

    async def answer(self) -> tuple[Said, Turn | None]:
        """The answer by the books, and the turn of it that did the work."""
        asked = Asked(
            key=self.metadata["idempotency-key"],
            action_key=self.metadata.get("amends-action-key", ""),
            kind=self.metadata["amends-kind"],
            direction=self.metadata["amends-direction"],
            target=self.metadata.get("amends-action-target", ""),
            request=self.request,
        )
        said = await self.participant.books(self.service).answer(asked, self._work)
        return said, self.turn

    async def _work(self) -> Said:
        turn = self.turn = self._next_turn()
        if turn.before is not None:
            await turn.before.wait()
        if turn.instead is not None:
            return turn.instead
        return Said(effect_id=self._take_effect(), abort=turn.abort)

    def _next_turn(self) -> Turn:
        key = f"{self.metadata['amends-saga-id']}/{self.side}"
        turns = self.participant.turns.get(key) or self.participant.turns.get(self.side)
        if turns is None and self.participant.chance is not None:
            return self.participant.chance(self.side)
        turns = turns or [OK]
        turn = turns[min(self.participant.worked[key], len(turns) - 1)]
        self.participant.worked[key] += 1
        return turn

    def _take_effect(self) -> str:
        effect_id = f"{self.metadata['amends-step']}-{self.metadata['amends-attempt']}"
        if self.metadata["amends-kind"] != "read_only":
            self.participant.journal.write(entry("effect", self.metadata, effect_id=effect_id))
        return effect_id


def entry(
    event: str,
    metadata: dict[str, str],
    *,
    effect_id: str = "",
    outcome: str = "",
    deadline_left_s: float | None = None,
) -> Entry:
    """A line of the journal about a call."""
    return Entry(
        event=event,
        time_s=now_s(),
        name=metadata["amends-step"],
        key=metadata["idempotency-key"],
        saga_id=metadata["amends-saga-id"],
        step=metadata["amends-step"],
        direction=metadata["amends-direction"],
        attempt=int(metadata["amends-attempt"]),
        effect_id=effect_id,
        outcome=outcome,
        deadline_left_s=deadline_left_s,
    )


def _response(method: str, said: Said) -> bytes:
    if method == "Undo":
        return pb.UndoResponse().SerializeToString()
    return pb.DoResponse(effect_id=said.effect_id).SerializeToString()


@asynccontextmanager
async def participating(journal: Journal) -> AsyncGenerator[Participant]:
    """A participant that listens."""
    participant = Participant(journal)
    server = grpc.aio.server(options=(("grpc.so_reuseport", 0),))
    for service in (BARRIER, KEY, PLAIN):
        handlers: dict[str, Any] = {
            method: grpc.unary_unary_rpc_method_handler(participant.handler(service, method)) for method in METHODS
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
    participant.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    try:
        yield participant
    finally:
        await server.stop(0)
