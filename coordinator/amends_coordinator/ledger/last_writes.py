"""What this writer wrote last of each saga: to recognise a write that is sent again, and to write only what changes.

A decision whose commit answer was lost is stored or not: so what was sent tells how to recognise it (`written_by` in
the row names its batch), but what the row holds is known only once the commit was answered.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from amends_coordinator.ports.ledger import Write

if TYPE_CHECKING:
    from amends_coordinator.core.ids import SagaId
    from amends_coordinator.core.saga import Saga
    from amends_coordinator.ports.ledger import NewSaga


REMEMBERED_BYTES = 64 << 20
"""Payloads of all remembered writes together: most are small, and few of the largest are worth the memory."""


@dataclass(eq=False, slots=True)
class _Last:
    content: NewSaga | Write
    batch: str
    payload_bytes: int
    is_stored: bool = False


class LastWrites:
    """Belongs to the writer's thread.

    Args:
        limit: of so many sagas the last write is remembered, the newest ones; of fewer if their payloads are large.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._of: dict[SagaId, _Last] = {}
        self._payload_bytes = 0

    def sent(self, content: NewSaga | Write, batch: str) -> None:
        """The guard let it through, so it is stored if the batch is committed."""
        saga = content.saga
        self._forget(saga.id)
        last = self._of[saga.id] = _Last(content, batch, _payload_bytes(saga))
        self._payload_bytes += last.payload_bytes
        while len(self._of) > self._limit or (self._payload_bytes > REMEMBERED_BYTES and len(self._of) > 1):
            self._forget(next(iter(self._of)))

    def _forget(self, saga_id: SagaId) -> None:
        last = self._of.pop(saga_id, None)
        if last is not None:
            self._payload_bytes -= last.payload_bytes

    def stored(self, content: NewSaga | Write) -> None:
        """The batch was committed for certain, and the rows are as this one wrote them."""
        last = self._of.get(content.saga.id)
        if last is not None and last.content is content:
            last.is_stored = True

    def before(self, write: Write) -> Saga | None:
        """The saga as its row holds it, if the guard lets this write through; None: nobody here knows."""
        last = self._of.get(write.saga.id)
        if last is None or not last.is_stored:
            return None
        version = last.content.seen_version + 1 if isinstance(last.content, Write) else 1
        return last.content.saga if version == write.seen_version else None

    def was_sent(self, write: Write, batch: str) -> bool:
        """Whether an equal write was sent in this batch, which wrote the saga last: its answer was lost, not its
        effect.
        """
        last = self._of.get(write.saga.id)
        return last is not None and last.batch == batch and (last.content is write or last.content == write)


def _payload_bytes(saga: Saga) -> int:
    total = len(saga.input)
    for intent in saga.intents:
        total += len(intent.request)
        if intent.response is not None:
            total += len(intent.response)
    return total
