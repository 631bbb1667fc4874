"""What a participant remembers by key, and what each kind of promise makes of it: written by hand, without the SDK.

Three rules of the world, each a class: `BarrierBooks` (once per key; another request under a key, or a copy that is
still running, is answered ABORTED; an undo that comes first leaves a mark, and the action that comes after it is
refused; refusals are kept and sealed), `KeyBooks` (once per key, nothing else), `PlainBooks` (every call has an
effect).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Protocol

import grpc

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

Code = grpc.StatusCode
SEAL = (("amends-sealed", "1"),)
BEFORE_PIVOT = frozenset({"compensatable", "pivot"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """An answer: OK, or a code with trailers. `effect`: the work was done; `abort`: it asks for the saga to be rolled
    back.
    """

    code: grpc.StatusCode = Code.OK
    text: str = ""
    trailers: tuple[tuple[str, str | bytes], ...] = ()
    effect_id: str = ""
    abort: str = ""

    @property
    def ok(self) -> bool:
        """Whether it is done."""
        return self.code is Code.OK


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A call as it came in."""

    key: str
    action_key: str
    kind: str
    direction: str
    target: str
    request: bytes


class Books(Protocol):
    """How a promise answers a call; `work` does what there is to do, and is called only where it is to be done."""

    async def answer(self, asked: Asked, work: Callable[[], Awaitable[Said]]) -> Said:
        """Answer a call."""
        ...

    def forget(self) -> None:
        """Lose everything: the participant purged its memory."""
        ...


class Standing(Enum):
    """What is known under a key."""

    RUNNING = "a copy is running"
    DONE = "done"
    REFUSED = "refused for good"
    CLOSED = "it never came, and never will be run"


@dataclass(slots=True)
class Row:
    """A guard row."""

    standing: Standing
    request: bytes = b""
    said: Said = field(default_factory=Said)


RUNS = Said(code=Code.ABORTED, text="a copy of this call is still running")
OTHER = Said(code=Code.ABORTED, text="another request came under this key")
MISSING = Said(code=Code.NOT_FOUND, text="this key is not known")
NEVER = Said(code=Code.NOT_FOUND, text="this key never came and never will be run", trailers=SEAL)
CLOSED = Said(code=Code.FAILED_PRECONDITION, text="this key was closed by its compensation or a lookup", trailers=SEAL)


@dataclass(slots=True)
class BarrierBooks:
    """The barrier's rules."""

    rows: dict[str, Row] = field(default_factory=dict[str, Row])
    seals: bool = True

    async def answer(self, asked: Asked, work: Callable[[], Awaitable[Said]]) -> Said:
        """See the protocol."""
        if asked.direction == "lookup":
            return self._find(asked)
        row = self.rows.get(asked.key)
        if row is not None:
            return _repeated(row, asked)
        if asked.direction == "compensation" and asked.target == "same":
            action = self.rows.setdefault(asked.action_key, Row(Standing.CLOSED))
            if action.standing is Standing.RUNNING:
                return RUNS
            if action.standing is not Standing.DONE:
                self.rows[asked.key] = Row(Standing.DONE, asked.request)
                return Said()
        return await self._run(asked, work)

    def forget(self) -> None:
        """See the protocol."""
        self.rows.clear()

    async def _run(self, asked: Asked, work: Callable[[], Awaitable[Said]]) -> Said:
        row = self.rows[asked.key] = Row(Standing.RUNNING, asked.request)
        try:
            said = await work()
        except BaseException:
            del self.rows[asked.key]  # rolled back: as if it had never come
            raise
        if said.ok:
            row.standing = Standing.DONE
        elif said.code is Code.FAILED_PRECONDITION and asked.direction == "action" and asked.kind in BEFORE_PIVOT:
            row.standing, said = Standing.REFUSED, replace(said, trailers=SEAL)
        else:
            del self.rows[asked.key]
        row.said = said
        return said

    def _find(self, asked: Asked) -> Said:
        row = self.rows.get(asked.action_key)
        if row is not None and row.standing is Standing.RUNNING:
            return RUNS
        if row is not None and row.standing is Standing.DONE:
            return row.said
        if not self.seals or asked.kind not in BEFORE_PIVOT:
            return MISSING
        self.rows.setdefault(asked.action_key, Row(Standing.CLOSED))
        return NEVER


def _repeated(row: Row, asked: Asked) -> Said:
    if row.standing is Standing.RUNNING:
        return RUNS
    if row.standing is Standing.CLOSED:
        return CLOSED
    return row.said if row.request == asked.request else OTHER


@dataclass(slots=True)
class KeyBooks:
    """Once per key; a refusal isn't kept, an undo finds its work by the action's key or finds nothing."""

    done: dict[str, Said] = field(default_factory=dict[str, Said])
    running: set[str] = field(default_factory=set[str])

    async def answer(self, asked: Asked, work: Callable[[], Awaitable[Said]]) -> Said:
        """See the protocol."""
        if asked.direction == "lookup":
            return self.done.get(asked.action_key, MISSING)
        if asked.key in self.done:
            return self.done[asked.key]
        if asked.key in self.running:
            return RUNS
        if asked.direction == "compensation" and asked.target == "same" and asked.action_key not in self.done:
            return MISSING
        self.running.add(asked.key)
        try:
            said = await work()
        finally:
            self.running.discard(asked.key)
        if said.ok:
            self.done[asked.key] = said
        return said

    def forget(self) -> None:
        """See the protocol."""
        self.done.clear()


@dataclass(slots=True)
class PlainBooks:
    """Nothing is remembered but what was ever done."""

    done: dict[str, Said] = field(default_factory=dict[str, Said])

    async def answer(self, asked: Asked, work: Callable[[], Awaitable[Said]]) -> Said:
        """See the protocol."""
        if asked.direction == "lookup":
            return self.done.get(asked.action_key, MISSING)
        said = await work()
        if said.ok:
            self.done[asked.key] = said
        return said

    def forget(self) -> None:
        """See the protocol."""
        self.done.clear()
