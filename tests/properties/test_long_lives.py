"""Random lives of longer sagas: whatever happens keeps every promise, and once participants answer OK they all end."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from amends_coordinator.core.events import AttemptEnded, Event, Moment, Started
from amends_coordinator.core.ids import Instant
from amends_coordinator.core.plan import Plan
from amends_coordinator.core.states import FailurePolicy, Guarantee
from tests.properties.plans import TICK_US, Options, legal_orders, mixed_plan
from tests.properties.search import NODE, Findings, Node, events_of, healing_event, new_saga, results

LONGEST_HEALING = 300

OPTIONS = st.builds(
    Options,
    lookup=st.booleans(),
    needs_response=st.booleans(),
    guarantee=st.sampled_from(Guarantee),
    maximum_refusals=st.integers(1, 3),
    rounds=st.integers(1, 4),
)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Chains of three to six steps, each with options of its own."""
    order = draw(st.integers(3, 6).flatmap(lambda length: st.sampled_from(legal_orders(length))))
    options = draw(st.lists(OPTIONS, min_size=len(order), max_size=len(order)))
    return mixed_plan(order, options, draw(st.sampled_from(FailurePolicy)))


CHANCES = st.tuples(st.integers(0, 10_000), st.integers(0, 3), st.floats(0.0, 0.999), st.integers(0, 20))
"""Which of the possible events, which outcome in binding, the random fraction, how many ticks pass first."""


@settings(max_examples=200)
@given(plan=plans(), life=st.lists(CHANCES, max_size=40))
def test_whatever_happens_promises_hold_and_every_saga_ends(
    plan: Plan, life: list[tuple[int, int, float, int]]
) -> None:
    """S1 to S6, S8, S11, L1: crashes, timeouts, jitter, any answer at any time; then participants answer OK."""
    findings = Findings()
    node = _only(new_saga(plan), Started(Moment(Instant(0), NODE)), findings)
    for which, binding, fraction, ticks in life:
        possible = list(events_of(node))
        if not possible:
            break
        event = _later(possible[which % len(possible)], ticks, fraction)
        outcomes = list(results(node, event, findings))
        assert not findings.broken, "\n\n".join(findings.broken)
        node = outcomes[binding % len(outcomes)]
    _heal(node, findings)


def _later(event: Event, ticks: int, fraction: float) -> Event:
    """The event some ticks later: answers take their time, and nobody wakes up on the dot."""
    at = Moment(Instant(event.at.now + ticks * TICK_US), NODE, fraction)
    if isinstance(event, AttemptEnded):
        answer = replace(event.answer, retry_delay_us=ticks * TICK_US) if ticks % 3 == 1 else event.answer
        return replace(event, at=at, answer=answer)
    return replace(event, at=at)


def _heal(node: Node, findings: Findings) -> None:
    for _ in range(LONGEST_HEALING):
        cure = healing_event(node)
        if cure is None:
            break
        node = _only(node, cure, findings)
    else:
        raise AssertionError(f"participants answer OK and the saga never ends\n{node.story()}")
    assert node.saga.state.ended or node.saga.attention_required, node.story()


def _only(node: Node, event: Event, findings: Findings) -> Node:
    """The state after an event whose requests can all be built."""
    outcomes = list(results(node, event, findings))
    assert not findings.broken, "\n\n".join(findings.broken)
    return outcomes[0]
