"""Judges a saga by the participants' journal, which stands outside the system: does the claim match what happened?"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from amends.v1 import saga_pb2

if TYPE_CHECKING:
    from tests.scenarios.journal import Entry, Journal

DIRECTIONS = {
    "action": saga_pb2.DIRECTION_ACTION,
    "compensation": saga_pb2.DIRECTION_COMPENSATION,
    "lookup": saga_pb2.DIRECTION_LOOKUP,
}


def judge(saga: saga_pb2.Saga, journal: Journal) -> None:
    """Fail with a sentence if the journal contradicts the saga."""
    entries = [entry for entry in journal.read() if entry.saga_id == saga.saga_id]
    done = [entry for entry in entries if entry.event == "effect" and entry.direction == "action"]
    undone = [entry for entry in entries if entry.event == "effect" and entry.direction == "compensation"]
    if saga.state == saga_pb2.Saga.STATE_COMMITTED:
        _committed(saga, done, undone)
    elif saga.state == saga_pb2.Saga.STATE_COMPENSATED:
        _compensated(done, undone)
    _one_key_each(entries)
    _never_two_at_once(entries)
    _intent_before_call(saga, entries)


def _committed(saga: saga_pb2.Saga, done: list[Entry], undone: list[Entry]) -> None:
    actions = {intent.step for intent in saga.intents if intent.direction == saga_pb2.DIRECTION_ACTION}
    assert sorted(entry.step for entry in done) == sorted(actions), "COMMITTED: each action's effect once"
    assert not undone, f"COMMITTED, yet undone: {undone}"


def _compensated(done: list[Entry], undone: list[Entry]) -> None:
    """Every effect undone once, after it happened, newest first."""
    assert [entry.step for entry in undone] == [entry.step for entry in reversed(done)], (
        f"COMPENSATED: done {[e.step for e in done]}, undone {[e.step for e in undone]}"
    )
    happened = {entry.step: entry.time_s for entry in done}
    assert all(entry.time_s >= happened[entry.step] for entry in undone), "undone before it happened"


def _one_key_each(entries: list[Entry]) -> None:
    """S2: one key for all attempts of a step and direction."""
    keys: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for entry in entries:
        keys[entry.step, entry.direction].add(entry.key)
    assert all(len(found) == 1 for found in keys.values()), f"S2: several keys: {dict(keys)}"


def _never_two_at_once(entries: list[Entry]) -> None:
    """No two calls with one key at the same time. A call whose process died has no end; the next beginning closes
    it.
    """
    running: dict[str, int] = {}
    for entry in entries:
        if entry.event == "begin":
            before = running.get(entry.key)
            assert before is None or before < entry.attempt, f"attempt {before} of {entry.key} began twice"
            running[entry.key] = entry.attempt
        elif entry.event == "end" and running.get(entry.key) != entry.attempt:
            raise AssertionError(f"attempt {entry.attempt} of {entry.key} ended while attempt {running} was running")


def _intent_before_call(saga: saga_pb2.Saga, entries: list[Entry]) -> None:
    """S1: no attempt without its durable intent."""
    announced = {(intent.step, intent.direction): intent.attempt_count for intent in saga.intents}
    for entry in entries:
        if entry.event == "begin":
            count = announced.get((entry.step, DIRECTIONS[entry.direction]), 0)
            assert entry.attempt <= count, (
                f"S1: {entry.step}/{entry.direction} attempt {entry.attempt} not in the ledger"
            )
