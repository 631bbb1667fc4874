"""The call that a barrier guards: what it needs of it, and the rows that it claims for it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import TYPE_CHECKING

from amends.barrier.errors import BarrierUseError
from amends.participant.context import Direction, ServedCall, StepContext, current_step
from amends.participant.refusals import NotInStep

if TYPE_CHECKING:
    from amends.barrier.rules import Found
    from amends.participant.guards import Guard, SyncGuard


@dataclass(frozen=True, slots=True)
class GuardedCall:
    """One call below a barrier."""

    step: StepContext
    served: ServedCall

    @property
    def request_hash(self) -> bytes:
        """What tells the request from another one under its key."""
        return sha256(self.served.method.encode() + b"\0" + self.served.request).digest()

    @property
    def step_time(self) -> datetime:
        """When the action's first attempt was announced; now, where a caller by hand does not say."""
        return (self.step.step_time or datetime.now(UTC)).astimezone(UTC)

    def own_row(self, state: Found) -> dict[str, object]:
        """The row of this call's own key."""
        return {
            **self._row(self.step.key, self.step.direction, state),
            "method": self.served.method,
            "request_hash": self.request_hash,
        }

    def action_mark(self, state: Found) -> dict[str, object]:
        """A row for the action that this compensation or lookup is about, of which nothing is known.

        Raises:
            BarrierUseError: the call does not say which action that is.
        """
        return {**self._row(self.action_key, Direction.ACTION, state), "method": ""}

    @property
    def action_key(self) -> str:
        """The key that the action was called with."""
        if self.step.action_key is None:
            raise BarrierUseError(
                f"this {self.step.direction} carries no amends-action-key, so nobody can tell which action it is "
                "about: its caller must send the metadata of a coordinator"
            )
        return self.step.action_key

    def _row(self, key: str, direction: Direction, state: Found) -> dict[str, object]:
        return {
            "ledger": self.step.ledger,
            "key": key,
            "saga": self.step.saga_id,
            "step": self.step.step,
            "direction": direction.value,
            "state": state.value,
            "step_time": self.step_time,
        }


def guarded_call(guard: Guard | SyncGuard, name: str, *, threaded: bool) -> GuardedCall:
    """The current call, whose end the guard decides from now on.

    Args:
        guard: noted in the call's state.
        name: what the user wrote, such as "barrier.transaction".
        threaded: whether the guard is a `SyncGuard`.

    Raises:
        BarrierUseError: there is none that a guard can decide.
    """
    try:
        step = current_step()
    except NotInStep:
        raise BarrierUseError(
            f"{name} works only inside the handler of a coordinator's call, because what it guards becomes true with "
            "the handler's response: serve the servicer with ParticipantServer and call it through a saga; work of "
            "your own needs no barrier"
        ) from None
    served = step.state.served
    if served is None or step.state.answered:
        raise BarrierUseError(
            f"{name} was opened where nothing waits for its end: inside step_context(), or after the handler had "
            "returned; open it in the handler that a ParticipantServer runs"
        )
    if step.state.guard is not None:
        raise BarrierUseError(
            f"{name} was opened although this call has a barrier already: one call is one transaction; put all of its "
            "work into one block"
        )
    if served.threaded is not threaded:
        raise BarrierUseError(
            f"{name} was given a sessionmaker in an `async def` handler, which would block every other call: give it "
            "an async_sessionmaker, or make the handler a plain `def`"
            if threaded
            else f"{name} was given an async_sessionmaker in a plain `def` handler: give it a sessionmaker, or make "
            "the handler `async def`"
        )
    step.state.guard = guard
    return GuardedCall(step, served)
