"""Emits once more what an incarnation that was killed may not have got rid of.

A saga's spans leave when it has ended, a moment later, in batches. A process that is killed in that moment takes them
with it. So the next incarnation emits the sagas again that came to rest shortly before the last sign of life of those
before it, or after it: ids are computed, so what arrives twice is one span for a backend.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from amends_coordinator.core.ids import Instant
from amends_coordinator.core.states import SagaState
from amends_coordinator.ports.ledger import UnreadableSagaError
from amends_coordinator.ports.listing import SagaFilter, Span

if TYPE_CHECKING:
    from amends_coordinator.core.ids import NodeId, SagaId
    from amends_coordinator.ports.ledger import Ledger
    from amends_coordinator.telemetry.tracing import SagaTraces

AT_REST = frozenset({SagaState.COMMITTED, SagaState.COMPENSATED, SagaState.COMPENSATION_FAILED})

WINDOW_US = 15_000_000
"""How long before the last sign of life a saga may have ended and its spans still have been under way: longer than a
heartbeat's interval, a batch's delay and an export's timeout together."""

PAGE = 100
MOST = 10_000
"""So many sagas are looked at; an incarnation that ends more within the window loses the oldest of them."""


async def emit_again(ledger: Ledger, traces: SagaTraces, *, node: NodeId) -> int:
    """Emit the sagas that came to rest when the incarnations before this one were last alive; answers how many.

    Args:
        ledger: open.
        traces: emits them, of those that are to be seen.
        node: this incarnation.

    Raises:
        LedgerError: some were not emitted.
    """
    others = [row for row in await ledger.list_nodes() if row.node_id != node]
    signs = [row.started_time if row.heartbeat_time is None else row.heartbeat_time for row in others]
    if not signs:
        return 0
    wanted = SagaFilter(states=AT_REST, updated=Span(earliest=Instant(max(signs) - WINDOW_US)))
    emitted, looked_at = 0, 0
    before: tuple[Instant, SagaId] | None = None
    while looked_at < MOST:
        page = await ledger.list_sagas(wanted, limit=PAGE, before=before)
        looked_at += len(page.sagas)
        for stored in page.sagas:
            with suppress(UnreadableSagaError):  # who looks at it is told; the others are seen all the same
                whole = await ledger.load(stored.saga.id)
                if whole is not None and whole.purged is None:
                    traces.saga_moved(whole.saga)
                    emitted += 1
        before = page.next
        if before is None:
            break
    return emitted
