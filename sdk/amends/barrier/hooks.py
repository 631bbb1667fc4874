"""`barrier.before_commit`: what else becomes true together with a call's response, such as an event in an outbox."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amends.barrier.effect import AsyncEffect, SyncEffect
from amends.barrier.errors import BarrierUseError
from amends.barrier.transaction import AsyncTransaction, SyncTransaction
from amends.participant.context import current_step
from amends.participant.refusals import NotInStep

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy.orm import Session


def before_commit(work: Callable[[Session], object]) -> None:
    """Have something done in the current call's transaction, last of all before its response is committed.

    Below `barrier.effect` that is the transaction in which the effect is written down as done.

    Args:
        work: gets the plain `Session`, also below an `AsyncSession` (it then runs as in `AsyncSession.run_sync`). It
            is not called if the handler does not succeed; what it raises rolls everything back.

    Raises:
        BarrierUseError: the call has no barrier.
    """
    try:
        guard = current_step().state.guard
    except NotInStep:
        guard = None
    if not isinstance(guard, AsyncTransaction | SyncTransaction | AsyncEffect | SyncEffect):
        raise BarrierUseError(
            "there is no barrier.transaction or barrier.effect to take part in: this works inside its block, or after "
            "it in the same handler"
        )
    guard.course.hooks.append(work)
