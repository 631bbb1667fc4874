"""Real ledgers that misbehave as a test tells them to: the fault is always "did it, then reported a fault"."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from amends_coordinator.ledger.memory import MemoryLedger
from amends_coordinator.ports.ledger import ROOMY, LedgerUnavailableError, WriteRefusedError
from tests.waiting import pause

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from amends_coordinator.core.ids import Instant, SagaId
    from amends_coordinator.ports.ledger import NewSaga, Room, Started, StoredSaga, Write


@dataclass(slots=True)
class Plan:
    """What goes wrong: `after` says of each call by its name whether it is done and then reported as failed."""

    after: Callable[[str], bool] = lambda _: False
    refuses: Callable[[Write], bool] = lambda _: False
    before: Callable[[str], bool] = lambda _: False
    appended: list[Write] = field(default_factory=list["Write"])


class LyingLedger(MemoryLedger):
    """The ledger in memory, whose answers get lost as planned."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.plan = plan

    async def append(self, write: Write) -> int:
        """See the port."""
        if self.plan.refuses(write):
            raise WriteRefusedError("planted")
        self._fail_before("append")
        version = await super().append(write)
        self.plan.appended.append(write)
        self._fail_after("append")
        return version

    async def start(self, new: NewSaga) -> Started:
        """See the port."""
        self._fail_before("start")
        started = await super().start(new)
        self._fail_after("start")
        return started

    async def claim(
        self, *, now: Instant, limit: int, held: frozenset[SagaId], room: Room = ROOMY
    ) -> Sequence[StoredSaga]:
        """See the port."""
        self._fail_before("claim")
        claimed = await super().claim(now=now, limit=limit, held=held, room=room)
        self._fail_after("claim")
        return claimed

    async def load(self, saga_id: SagaId) -> StoredSaga | None:
        """See the port."""
        self._fail_before("load")
        return await super().load(saga_id)

    async def heartbeat(self, now: Instant) -> None:
        """See the port."""
        self._fail_before("heartbeat")
        await super().heartbeat(now)

    def _fail_before(self, name: str) -> None:
        if self.plan.before(name):
            raise LedgerUnavailableError(f"planted: {name} was not done")

    def _fail_after(self, name: str) -> None:
        if self.plan.after(name):
            raise LedgerUnavailableError(f"planted: {name} was done, but the answer is lost")


class SlowLedger(MemoryLedger):
    """The ledger in memory, which takes its time to write."""

    async def append(self, write: Write) -> int:
        """See the port."""
        for _ in range(3):
            await pause()
        return await super().append(write)


@dataclass(slots=True)
class Every:
    """True for each n-th call of one name; a method that a test can plant."""

    name: str
    number: int
    seen: int = 0

    def __call__(self, name: str) -> bool:
        """Count, and say whether it is the turn."""
        if name != self.name:
            return False
        self.seen += 1
        return self.seen % self.number == 0


@dataclass(slots=True)
class Once:
    """True for the first call of one name."""

    name: str
    seen: int = 0

    def __call__(self, name: str) -> bool:
        """Count, and say whether it is the turn."""
        self.seen += name == self.name
        return name == self.name and self.seen == 1
