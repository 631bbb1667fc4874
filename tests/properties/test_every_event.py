"""Every event in every reachable state of small sagas, judged by what the answers prove.

The exploration (test_explore.py) judges by what is really the case at participants, and knows people, aborts and steps
side by side; this search knows every answer and event, possible or not, and no participant that keeps any rules.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from amends_coordinator.core.states import FailurePolicy, Guarantee
from tests.properties.plans import Options, legal_orders, small_plan
from tests.properties.search import search

OPTIONS = (
    Options(rounds=1, lookup=False, guarantee=Guarantee.NONE),
    Options(rounds=1, needs_response=True, policy=FailurePolicy.HALT),
    Options(rounds=1),
    Options(rounds=1, lookup=False, needs_response=True, policy=FailurePolicy.HALT, guarantee=Guarantee.BARRIER),
)
ONE_STEP = legal_orders(1)
TWO_STEPS = legal_orders(2)
THREE_STEPS = legal_orders(3)


def _cases() -> list[tuple[str, Options]]:
    return [
        *((order, replace(options, rounds=2, maximum_refusals=2)) for order in ONE_STEP for options in OPTIONS),
        *((order, options) for order in TWO_STEPS for options in OPTIONS[:2]),
        *((order, OPTIONS[3]) for order in ("CPR", "COC", "CCP")),
    ]


@pytest.mark.parametrize(("order", "options"), _cases(), ids=str)
def test_no_event_in_any_state_breaks_a_promise(order: str, options: Options) -> None:
    """S1, S2, S3, S4, S5, S6, S8, S11, L1: on every move; what can't happen is refused, what is late dropped."""
    findings = search(small_plan(order, options))
    assert not findings.broken, "\n\n".join(findings.broken)
    assert findings.states >= 10


def test_orders_are_those_that_registration_accepts() -> None:
    """Compensatable or read-only steps, at most one pivot, then retriable or read-only ones."""
    assert ONE_STEP == ("C", "O", "P", "R")
    assert TWO_STEPS == ("CC", "CO", "CP", "CR", "OC", "OO", "OP", "OR", "PO", "PR", "RO", "RR")
    assert {"CPR", "CCP", "ORO"} <= set(THREE_STEPS)
    assert not {"PC", "RP", "PP", "RC"} & set(TWO_STEPS)
