"""What telemetry hears of a decision that is durable, whoever made it: a driver, a start, or somebody's verb."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from amends_coordinator.core.decision import Decision
    from amends_coordinator.core.states import SagaState
    from amends_coordinator.ports.telemetry import Telemetry


def tell(telemetry: Telemetry, decision: Decision, *, before: SagaState) -> None:
    """Tell of the dead letters that it opened, and of the saga's new state.

    Args:
        telemetry: hears it.
        decision: what is durable now.
        before: the saga's state in the ledger as the decision saw it.
    """
    for letter in decision.records.dead_letters:
        if letter.closed_time is None:
            telemetry.dead_letter_opened(decision.saga, letter)
    if decision.saga.state is not before:
        telemetry.saga_moved(decision.saga)
