"""The coordinator's promises, held against what it was seen to do: the calls of one saga, and how it ended.

An author's own checks look at the world; these look at the calls. They read nothing of the ledger but the saga's end.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

from amends.steps import StepKind, ancestors_of
from amends.testing.cases import COMMITTED, COMPENSATED
from amends.testing.faults import ACTION, COMPENSATION, LOOKUP

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from amends.testing.cases import AnySaga

SUCCEEDED, REJECTED, SEALED, UNKNOWN, NOT_SENT = "SUCCEEDED", "REJECTED", "REJECTED_SEALED", "UNKNOWN", "NOT_SENT"
_SETTLES_AN_UNDO = frozenset({SUCCEEDED, REJECTED, SEALED})


@dataclass(slots=True, kw_only=True)
class SeenCall:
    """One attempt as it left the coordinator.

    `order` and `end_order` count beginnings and ends of all calls. `outcome` is what the answer proved; "" where it
    never came: whoever made the call is gone. `incarnation` counts the coordinators.
    """

    step: str
    direction: str
    key: str
    attempt: int
    order: int
    incarnation: int = 1
    end_order: int | None = None
    outcome: str = ""

    def __str__(self) -> str:
        return f"{self.step}/{self.direction} (attempt {self.attempt})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What was seen of one saga.

    Attributes:
        saga: its description.
        calls: every attempt, in the order in which they began.
        state: the state in which it ended, by name.
        abort_accepted: whether somebody was told that the saga will be rolled back; None: nobody asked.
        settled_by_hand: steps whose dead letter was resolved by a person.
    """

    saga: AnySaga
    calls: Sequence[SeenCall]
    state: str
    abort_accepted: bool | None = None
    settled_by_hand: frozenset[str] = frozenset()

    def of(self, step: str, direction: str) -> list[SeenCall]:
        """The attempts of one call of one step."""
        return [call for call in self.calls if (call.step, call.direction) == (step, direction)]


def broken(seen: Seen) -> list[str]:
    """Every promise that is not kept, in a sentence that begins with its number."""
    return [f"{number}: {complaint}" for number, check in _CHECKS for complaint in check(seen)]


def _one_key(seen: Seen) -> Iterator[str]:
    keys: dict[tuple[str, str], str] = {}
    for call in seen.calls:
        key = keys.setdefault((call.step, call.direction), call.key)
        if key != call.key:
            yield f"{call} was made with the key {call.key}, an earlier attempt with {key}"
    if len(set(keys.values())) != len(keys):
        yield "two different calls were made with one key"
    for earlier, later in combinations(seen.calls, 2):
        if earlier.key == later.key and _was_under_way(earlier, later):
            yield f"{later} began before {earlier} had ended"


def _committed_means_done(seen: Seen) -> Iterator[str]:
    if seen.state != COMMITTED:
        return
    for step in seen.saga.steps:
        answers = {call.outcome for call in (*seen.of(step.name, ACTION), *seen.of(step.name, LOOKUP))}
        if SUCCEEDED not in answers and step.name not in seen.settled_by_hand:
            yield f"the saga is COMMITTED, but {step.name} never answered that it succeeded"
    for call in seen.calls:
        if call.direction == COMPENSATION:
            yield f"the saga is COMMITTED, but {call} was made"
            return


def _compensated_means_undone(seen: Seen) -> Iterator[str]:
    if seen.state != COMPENSATED:
        return
    for step in seen.saga.steps:
        if step.kind is StepKind.READ_ONLY or step.name in seen.settled_by_hand:
            continue
        undone = any(call.outcome in _SETTLES_AN_UNDO for call in seen.of(step.name, COMPENSATION))
        if not undone and _may_have_happened(seen, step.name):
            yield f"the saga is COMPENSATED, but {step.name} may have happened and was not undone"


def _may_have_happened(seen: Seen, step: str) -> bool:
    actions, lookups = seen.of(step, ACTION), seen.of(step, LOOKUP)
    outcomes = {call.outcome for call in (*actions, *lookups)}
    if SUCCEEDED in outcomes:
        return True
    if SEALED in outcomes:
        return False
    return bool(outcomes & {UNKNOWN, ""}) and bool(actions)


def _nothing_undone_beside(seen: Seen) -> Iterator[str]:
    undos = [call for call in seen.calls if call.direction == COMPENSATION]
    for undo in undos:
        for call in seen.calls:
            if call.direction != COMPENSATION and call.order < undo.order and _was_under_way(call, undo):
                yield f"{undo} began while {call} was under way"


def _newest_first(seen: Seen) -> Iterator[str]:
    begun = {step.name: seen.of(step.name, COMPENSATION) for step in seen.saga.steps}
    for step in seen.saga.steps:
        for earlier in ancestors_of(step.after):
            undos, older = begun[step.name], begun[earlier]
            if undos and older and older[0].order < undos[0].order:
                yield f"{earlier} was undone before {step.name}, which depends on it"
            yield from (
                f"{old} began while {undo} was under way"
                for undo in undos
                for old in older
                if _was_under_way(undo, old)
            )


def _abort_is_kept(seen: Seen) -> Iterator[str]:
    if seen.abort_accepted and seen.state == COMMITTED:
        yield "an abort was accepted, and the saga is COMMITTED"
    if seen.abort_accepted is False and seen.state != COMMITTED:
        yield f"an abort was refused, and the saga is {seen.state}"


def _was_under_way(earlier: SeenCall, later: SeenCall) -> bool:
    """Whether a call had not ended when a later one of the same incarnation began. A call whose coordinator was killed
    may still be under way at its participant; that nobody can wait for that is part of what participants are told.
    """
    if earlier.incarnation != later.incarnation or earlier.end_order is None:
        return False
    return earlier.order < later.order < earlier.end_order


_CHECKS: Iterable[tuple[str, Callable[[Seen], Iterator[str]]]] = (
    ("S2", _one_key),
    ("S3", _committed_means_done),
    ("S4", _compensated_means_undone),
    ("S5", _nothing_undone_beside),
    ("S5", _newest_first),
    ("S10", _abort_is_kept),
)
