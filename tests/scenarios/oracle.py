"""Judges a saga by the participants' journal, which stands outside the system: does the claim match what happened?

1. COMMITTED: every action's effect once, no undo. COMPENSATED: every effect that happened was undone once, after it
   happened, and after those of the steps that depend on its step. Otherwise whatever is left is owed, and a person is
   told.
2. No two calls with one key at the same time; one key per step and direction; no call without an earlier intent.
3. A saga that hasn't ended has a due time or a person who was told.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from amends import CompensationFailurePolicy
from amends.steps import StepKind
from amends.v1 import saga_pb2

if TYPE_CHECKING:
    from collections.abc import Mapping

    from amends import Saga
    from tests.scenarios.journal import Entry, Journal

    Ancestors = Mapping[str, frozenset[str]]

DIRECTIONS = {
    "action": saga_pb2.DIRECTION_ACTION,
    "compensation": saga_pb2.DIRECTION_COMPENSATION,
    "lookup": saga_pb2.DIRECTION_LOOKUP,
}


UNANSWERED = frozenset({"no answer", "cancelled"})


def judge(saga: saga_pb2.Saga, journal: Journal, definition: Saga[Any, Any] | None = None) -> None:
    """Fail with a sentence if the journal contradicts the saga.

    Args:
        saga: the saga as it claims to be.
        journal: what the participants wrote down.
        definition: says which steps depend on which; without it each depends on those before it. Any: its own types.
    """
    entries = [entry for entry in journal.read() if entry.saga_id == saga.saga_id]
    done = [entry for entry in entries if entry.event == "effect" and entry.direction == "action"]
    undone = [entry for entry in entries if entry.event == "effect" and entry.direction == "compensation"]
    _undone_in_order(done, undone, _ancestors(saga, definition), _passed_over(saga, definition))
    if saga.state == saga_pb2.Saga.STATE_COMMITTED:
        _committed(saga, done, undone, _read_only(definition))
    elif saga.state == saga_pb2.Saga.STATE_COMPENSATED:
        _compensated(saga, done, undone)
    else:
        _says_what_is_left(saga, done, undone)
    _one_key_each(entries)
    _never_two_at_once(entries)
    _no_undo_beside_an_action(saga, entries)
    _intent_before_call(saga, entries)


def _ancestors(saga: saga_pb2.Saga, definition: Saga[Any, Any] | None) -> Ancestors:
    """For each step, all steps that it depends on."""
    if definition is not None:
        found: dict[str, frozenset[str]] = {}
        for step in definition.steps:
            found[step.name] = frozenset(name for each in step.after for name in (each.name, *found[each.name]))
        return found
    names = [intent.step for intent in saga.intents if intent.direction == saga_pb2.DIRECTION_ACTION]
    return {name: frozenset(names[:place]) for place, name in enumerate(names)}


def _passed_over(saga: saga_pb2.Saga, definition: Saga[Any, Any] | None) -> set[str]:
    """The steps that a saga goes on past: those where there was nothing to undo by then, whatever arrives later, and
    unless it halts those that were parked for a while.
    """
    nothing = saga_pb2.Intent.STATE_NOTHING_TO_UNDO
    found = {intent.step for intent in saga.intents if intent.state == nothing}
    halts = definition is not None and definition.compensation_failure_policy is CompensationFailurePolicy.HALT
    return found if halts else found | {letter.step for letter in saga.dead_letters}


def _undone_in_order(done: list[Entry], undone: list[Entry], ancestors: Ancestors, passed_over: set[str]) -> None:
    """S5: each effect at most once undone, after it happened, and after those of the steps that depend on its step."""
    steps = [entry.step for entry in undone]
    assert len(steps) == len(set(steps)), f"undone twice: {steps}"
    happened = {entry.step: entry.time_s for entry in done}
    for place, entry in enumerate(undone):
        assert entry.time_s >= happened.get(entry.step, 0.0), f"{entry.step} was undone before it happened"
        later_ones = (later for later in steps[place + 1 :] if later not in passed_over)
        early = [later for later in later_ones if entry.step in ancestors.get(later, ())]
        assert not early, f"S5: {entry.step} was undone before {early}, which depend on it"


def _read_only(definition: Saga[Any, Any] | None) -> set[str]:
    """The steps that have no effect."""
    steps = () if definition is None else definition.steps
    return {step.name for step in steps if step.kind is StepKind.READ_ONLY}


def _committed(saga: saga_pb2.Saga, done: list[Entry], undone: list[Entry], read_only: set[str]) -> None:
    actions = [intent for intent in saga.intents if intent.direction == saga_pb2.DIRECTION_ACTION]
    left_out = {intent.step for intent in actions if intent.state == saga_pb2.Intent.STATE_RESOLVED} | read_only
    found = sorted(entry.step for entry in done if entry.step not in left_out)
    wanted = sorted(intent.step for intent in actions if intent.step not in left_out)
    if saga.unproven:
        found = sorted(set(found))
    assert found == wanted, "COMMITTED: each action's effect once"
    assert not undone, f"COMMITTED, yet undone: {undone}"


def _compensated(saga: saga_pb2.Saga, done: list[Entry], undone: list[Entry]) -> None:
    """Every effect was undone. Where the end rests on an assumption, a late one may stand: the saga says so."""
    by_hand = {intent.step for intent in saga.intents if intent.state == saga_pb2.Intent.STATE_RESOLVED}
    steps = {entry.step for entry in undone}
    left = [entry.step for entry in done if entry.step not in steps | by_hand]
    assert not left or saga.unproven, f"COMPENSATED, yet this stands: {left}"


def _says_what_is_left(saga: saga_pb2.Saga, done: list[Entry], undone: list[Entry]) -> None:
    """L1: neither ended nor forgotten, and what is left undone is owed."""
    open_letters = [letter for letter in saga.dead_letters if not letter.HasField("close_time")]
    assert saga.attention_required is bool(open_letters)
    assert saga.HasField("due_time") or open_letters, "L1: it doesn't end, nobody looks at it, and nobody is told"
    if saga.state == saga_pb2.Saga.STATE_COMPENSATION_FAILED:
        assert open_letters, "COMPENSATION_FAILED, and nobody is told why"
        settled = (saga_pb2.Intent.STATE_RESOLVED, saga_pb2.Intent.STATE_NOTHING_TO_UNDO)
        out_of_it = {intent.step for intent in saga.intents if intent.state in settled}
        left = {entry.step for entry in done} - {entry.step for entry in undone} - out_of_it
        assert saga.compensations_owed >= len(left), f"left undone: {left}, owed: {saga.compensations_owed}"


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


def _no_undo_beside_an_action(saga: saga_pb2.Saga, entries: list[Entry]) -> None:
    """S5: no compensation begins while a call of an action or lookup is in flight. One that nobody waited for any more
    ends without an answer, as late as it likes; or with one, where a process stood still at its deadline.
    """
    given_up = {
        (intent.step, intent.direction, attempt.number): attempt.end_time.ToMicroseconds() / 1e6
        for intent in saga.intents
        for attempt in intent.attempts
        if attempt.status_code == "DEADLINE_EXCEEDED"
    }
    undos = [entry.time_s for entry in entries if (entry.event, entry.direction) == ("begin", "compensation")]
    begun = {(entry.key, entry.attempt): entry.time_s for entry in entries if entry.event == "begin"}
    for entry in entries:
        if entry.event != "end" or entry.direction == "compensation" or entry.outcome in UNANSWERED:
            continue
        given_up_s = given_up.get((entry.step, DIRECTIONS[entry.direction], entry.attempt), entry.time_s)
        over_s = min(entry.time_s, given_up_s)
        beside = [time_s for time_s in undos if begun[entry.key, entry.attempt] < time_s < over_s]
        assert not beside, f"S5: a compensation began while {entry.step}/{entry.direction} was in flight"


def _intent_before_call(saga: saga_pb2.Saga, entries: list[Entry]) -> None:
    """S1: no attempt without its durable intent."""
    announced = {(intent.step, intent.direction): intent.attempt_count for intent in saga.intents}
    for entry in entries:
        if entry.event == "begin":
            count = announced.get((entry.step, DIRECTIONS[entry.direction]), 0)
            assert entry.attempt <= count, (
                f"S1: {entry.step}/{entry.direction} attempt {entry.attempt} not in the ledger"
            )
