"""When a call is repeated, and when it isn't any more.

A budget is a total time and a number of clear refusals. It is charged with what was really tried: an attempt's own time
and the delay after it. Attempts that were never sent cost nothing, and neither does time in which no node drove the
saga,
because nothing is computed from the wall clock between two incarnations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from amends_coordinator.core.guards import REFUSALS
from amends_coordinator.core.states import Outcome
from amends_coordinator.core.values import quick

if TYPE_CHECKING:
    from amends_coordinator.core.answer import Answer
    from amends_coordinator.core.ids import Instant
    from amends_coordinator.core.plan import RetryPlan
    from amends_coordinator.core.saga import Intent

LARGEST_DOUBLING = 40
"""Delays stop doubling here, long before a number could overflow; the cap of the policy is reached much earlier."""


@quick
@dataclass(frozen=True, slots=True)
class Charge:
    """What an attempt leaves of the budget: the new counts, the delay before the next one, and whether there is one."""

    refusals: int
    spent_us: int
    unsent_us: int
    delay_us: int
    spent: bool


def backoff_us(retry: RetryPlan, attempt: int, fraction: float) -> int:
    """The delay after attempt number `attempt`: doubled each time up to the cap, half of it fixed and half random."""
    doubled = retry.initial_delay_us << min(attempt - 1, LARGEST_DOUBLING)
    delay = min(doubled, retry.maximum_delay_us)
    half = delay // 2
    return half + int((delay - half) * fraction)


def charge(intent: Intent, retry: RetryPlan, answer: Answer, now: Instant, fraction: float) -> Charge:
    """Charge an attempt that did not settle its call to the call's budget."""
    delay = backoff_us(retry, max(intent.attempt, 1), fraction)
    if answer.retry_delay_us is not None:
        delay = max(delay, min(answer.retry_delay_us, retry.maximum_delay_us))
    took = max(0, now - intent.attempt_start_time)
    if answer.outcome is Outcome.NOT_SENT:
        unsent = intent.unsent_us + took + delay
        return Charge(intent.refusals, intent.spent_us, unsent, delay, spent=False)
    refusals = intent.refusals + (answer.outcome in REFUSALS)
    spent_us = intent.spent_us + took + delay
    spent = spent_us >= retry.total_timeout_us or refusals >= retry.maximum_refusals
    return Charge(refusals, spent_us, 0, delay, spent=spent)


def stalled(intent: Intent, retry: RetryPlan) -> bool:
    """Whether a call could not be sent for as long as its whole budget. It stays owed, but holds back nothing else."""
    return intent.unsent_us >= retry.total_timeout_us
