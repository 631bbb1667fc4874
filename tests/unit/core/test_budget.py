"""Budgets: when a call is repeated, and what is charged for it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amends_coordinator.core.answer import Answer
from amends_coordinator.core.budget import backoff_us, charge, stalled
from amends_coordinator.core.ids import Instant, NodeId, StepName
from amends_coordinator.core.plan import RetryPlan
from amends_coordinator.core.saga import Attempt, Intent
from amends_coordinator.core.states import Direction, Outcome
from tests.unit.core.sagas import SECOND, retry

MILLISECOND = 1_000
ACTION_RETRY = RetryPlan(
    initial_delay_us=100 * MILLISECOND,
    maximum_delay_us=5 * SECOND,
    total_timeout_us=30 * SECOND,
    maximum_refusals=10,
)
UNKNOWN = Answer(outcome=Outcome.UNKNOWN, status_code="UNAVAILABLE")
NOT_SENT = Answer(outcome=Outcome.NOT_SENT)
REFUSED = Answer(outcome=Outcome.REJECTED, status_code="NOT_FOUND")


def an_intent(*, attempt: int = 1, started: int = 0) -> Intent:
    """An action of which one attempt is in flight since `started`."""
    now = Instant(started)
    attempts = (Attempt(number=attempt, node=NodeId("node-1"), start_time=now),)
    return Intent(
        step=StepName("reserve"),
        direction=Direction.ACTION,
        method="shop.Shop/Do",
        attempt=attempt,
        attempts=attempts,
        created_time=Instant(0),
        updated_time=now,
    )


def test_delays_double_up_to_the_cap() -> None:
    """F13, L1: the fixed half doubles from attempt to attempt; the cap is never passed."""
    least = [backoff_us(ACTION_RETRY, attempt, 0.0) // MILLISECOND for attempt in range(1, 10)]
    assert least == [50, 100, 200, 400, 800, 1600, 2500, 2500, 2500]
    most = [backoff_us(ACTION_RETRY, attempt, 0.999) for attempt in range(1, 10)]
    for low, high in zip(least, most, strict=True):
        assert 1.99 * low * MILLISECOND <= high < 2 * low * MILLISECOND


@given(
    attempt=st.integers(1, 10**9),
    initial=st.integers(1, 10**15),
    maximum=st.integers(1, 10**15),
    fraction=st.floats(0, 1),
)
def test_delays_never_leave_their_bounds(attempt: int, initial: int, maximum: int, fraction: float) -> None:
    """F11, L1: whatever the numbers, a delay lies between half of the first one and the cap; it never overflows."""
    plan = RetryPlan(initial_delay_us=initial, maximum_delay_us=maximum, total_timeout_us=1, maximum_refusals=1)
    delay = backoff_us(plan, attempt, fraction)
    assert min(initial, maximum) // 2 <= delay <= maximum


def test_five_thousand_attempts() -> None:
    """F11: an outage of 5,000 attempts neither overflows nor leaves the cap, and costs nothing."""
    plan = replace(ACTION_RETRY, initial_delay_us=MILLISECOND, maximum_delay_us=20 * MILLISECOND)
    intent, now = an_intent(), 0
    for attempt in range(1, 5_001):
        charged = charge(replace(intent, attempt=attempt), plan, NOT_SENT, Instant(now), 0.999)
        assert charged.delay_us < 20 * MILLISECOND
        assert not charged.spent
        now += charged.delay_us
        intent = replace(an_intent(started=now), unsent_us=charged.unsent_us, spent_us=charged.spent_us)
    assert intent.spent_us == 0
    assert stalled(intent, plan)


def test_time_and_delay_are_charged() -> None:
    """L1: an attempt costs its own time and the delay after it; the budget is spent exactly when they add up to it."""
    plan = retry(total_s=4)
    once = charge(an_intent(), plan, UNKNOWN, Instant(2 * SECOND), 0.0)
    assert (once.spent_us, once.spent) == (3 * SECOND, False)
    spent = charge(replace(an_intent(), spent_us=1 * SECOND), plan, UNKNOWN, Instant(2 * SECOND), 0.0)
    assert (spent.spent_us, spent.spent) == (4 * SECOND, True)


def test_refusals_are_counted() -> None:
    """L1: clear refusals and wiring faults spend a budget by their number, unknown ends don't."""
    plan = retry(total_s=1000, refusals=2)
    for outcome in (Outcome.REJECTED, Outcome.REJECTED_SEALED, Outcome.WIRING_FAULT):
        answer = Answer(outcome=outcome)
        first = charge(an_intent(), plan, answer, Instant(0), 0.0)
        second = charge(replace(an_intent(), refusals=first.refusals), plan, answer, Instant(0), 0.0)
        assert [(first.refusals, first.spent), (second.refusals, second.spent)] == [(1, False), (2, True)]
    unknown = charge(replace(an_intent(), refusals=1), plan, UNKNOWN, Instant(0), 0.0)
    assert (unknown.refusals, unknown.spent) == (1, False)


def test_what_was_not_sent_costs_nothing() -> None:
    """L1: it only makes the call stalled once it lasts as long as a whole budget, and one real attempt ends that."""
    plan = retry(total_s=4)
    intent = replace(an_intent(), spent_us=3 * SECOND, unsent_us=2 * SECOND)
    charged = charge(intent, plan, NOT_SENT, Instant(1 * SECOND), 0.0)
    assert (charged.spent_us, charged.unsent_us, charged.spent) == (3 * SECOND, 4 * SECOND, False)
    assert stalled(replace(intent, unsent_us=charged.unsent_us), plan)
    assert charge(replace(intent, unsent_us=charged.unsent_us), plan, REFUSED, Instant(0), 0.0).unsent_us == 0


@pytest.mark.parametrize(
    ("asked_s", "waits_s"), [(None, 1), (0, 1), (-5, 1), (1, 1), (3, 3), (8, 8), (3600, 8)], ids=str
)
def test_retry_info_is_obeyed_up_to_the_cap(asked_s: int | None, waits_s: int) -> None:
    """L1: a participant may ask for a longer pause than ours, never for a shorter one nor for one beyond the cap."""
    asked_us = None if asked_s is None else asked_s * SECOND
    answer = replace(UNKNOWN, retry_delay_us=asked_us)
    assert charge(an_intent(), retry(maximum_s=8), answer, Instant(0), 0.0).delay_us == waits_s * SECOND


def test_clock_that_goes_backwards_refunds_nothing() -> None:
    """L1: two nodes' clocks differ; an attempt never takes less than no time."""
    charged = charge(an_intent(started=50 * SECOND), retry(), UNKNOWN, Instant(40 * SECOND), 0.0)
    assert charged.spent_us == charged.delay_us
