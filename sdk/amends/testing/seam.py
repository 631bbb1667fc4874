"""Where a fault can be put into a rehearsal: around every call, around every write of the ledger, and inside the
participant, just before what a handler did becomes true.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

from amends.participant.context import Direction, StepKind

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from amends_coordinator.bootstrap import Answer

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSite:
    """One attempt of one call.

    Attributes:
        saga_id: the saga.
        step: the step's name.
        direction: of the call.
        kind: of the step.
        attempt: counts from 1.
        method: "package.Service/Method".
        participant: who is called.
        key: the idempotency key.
    """

    saga_id: str
    step: str
    direction: Direction
    kind: StepKind
    attempt: int
    method: str
    participant: str
    key: str

    def __str__(self) -> str:
        return f"{self.step}/{self.direction} #{self.attempt}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One intent as a write leaves it.

    Attributes:
        step: the step's name.
        direction: of the intent.
        state: as in `amends.v1.Intent.State`, without its prefix: "PENDING", "SUCCEEDED", ….
        attempt: the newest announced attempt.
        begins: whether that attempt begins now, with this very write; else a pending one waits for its time.
    """

    step: str
    direction: Direction
    state: str
    attempt: int
    begins: bool

    def __str__(self) -> str:
        waits = "" if self.begins or self.state != "PENDING" else ", waits"
        return f"{self.step}/{self.direction} {self.state} #{self.attempt}{waits}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteSite:
    """One write of a saga.

    Attributes:
        saga_id: the saga.
        state: of the saga after it, as in `amends.v1.Saga.State`, without its prefix.
        changes: the intents that it adds or changes.
        verb: what a person did ("abort", "retry", …); "" where the coordinator decided it.
    """

    saga_id: str
    state: str
    changes: tuple[Change, ...]
    verb: str = ""

    def __str__(self) -> str:
        return ", ".join((self.verb or self.state, *map(str, self.changes)))


class Fault(Protocol):
    """What is done to a rehearsal. Derive it from `NoFault`, and override what the fault is about."""

    async def call(self, site: CallSite, send: Callable[[], Awaitable[Answer]]) -> Answer:
        """Stands around every call of a participant.

        `send()` makes the call: the handler runs, and its answer is read as one that came over a network. It may be
        awaited never (the call is lost on its way), once, twice (it is delivered twice), or in a task of
        `Rehearsal.later` (it arrives when nobody waits any more). What is returned is what the coordinator hears.
        Virtual time passes here by `asyncio.sleep`. The task is cancelled where the coordinator gives the call up, and
        where it is killed.
        """
        ...

    async def write(self, site: WriteSite, commit: Callable[[], Awaitable[T]]) -> T:
        """Stands around every write of the ledger.

        `commit()` makes it durable, and its answer is to be returned. `Rehearsal.kill()` before it: the coordinator is
        killed before it is written; after it: before anything comes of it.
        """
        ...

    def commit(self, site: CallSite) -> None:
        """Is called inside the participant, just before a guard (`amends.barrier`) makes true what a handler did.

        Whatever it raises stands for the death of the participant's process there: nothing of it becomes true, and the
        coordinator gets no answer.
        """


class NoFault:
    """Nothing goes wrong."""

    async def call(self, site: CallSite, send: Callable[[], Awaitable[Answer]]) -> Answer:
        """See `Fault`."""
        return await send()

    async def write(self, site: WriteSite, commit: Callable[[], Awaitable[T]]) -> T:
        """See `Fault`."""
        return await commit()

    def commit(self, site: CallSite) -> None:
        """See `Fault`."""
