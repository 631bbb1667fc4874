"""Compares what the shop's databases say with what the sagas claim, and lists every contradiction.

The rules, per saga:

* It ended, and nothing about it waits for a person.
* `COMMITTED`: each kind of thing stands exactly once, and nothing was undone.
* `COMPENSATED`: nothing stands; whatever was made was undone once, after it was made, newest first, one by one.
* Each key made at most one effect, no two calls with one key ran at the same time, and every call had been announced in
  the ledger.
* An action that the ledger calls succeeded made its effect. The output names things that stand.

And of the shop as a whole: no row belongs to a saga that nobody claims, and no piece of stock is missing.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from shop.demo.books import THINGS
from shop.demo.claims import COMMITTED, COMPENSATED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from shop.demo.books import Books, ServiceCall
    from shop.demo.claims import Claim

ACTION = "action"
COMPENSATION = "compensation"
CANCELLED = "CANCELLED"


@dataclass(frozen=True, slots=True)
class Finding:
    """One contradiction: whom it is about (a saga id, or an article of the stock) and what is wrong."""

    subject: str
    text: str


def audit(claims: Sequence[Claim], books: Books) -> tuple[Finding, ...]:
    """Every contradiction between the claims and the books; empty if there is none."""
    findings = [Finding(claim.saga_id, text) for claim in claims for text in _contradictions(claim, books)]
    known = {claim.saga_id for claim in claims}
    seen = {row.saga_id for row in books.standing} | {call.saga_id for call in books.calls}
    findings += [Finding(stranger, "is in the books, but no saga claims it") for stranger in sorted(seen - known)]
    findings += [
        Finding(sku, f"{gap} pieces are neither free nor held") for sku, gap in sorted(books.stock_gaps.items()) if gap
    ]
    return tuple(findings)


def _contradictions(claim: Claim, books: Books) -> Iterator[str]:
    calls = books.calls_of(claim.saga_id)
    if claim.attention_required:
        yield "waits for a person: a dead letter is open"
    yield from _what_stands(claim, books)
    yield from _output(claim, books)
    yield from _keys(claim, calls)
    yield from _claimed_effects(claim, calls)
    if claim.state == COMMITTED:
        yield from _nothing_undone(calls)
    if claim.state == COMPENSATED:
        yield from _all_undone(calls)


def _what_stands(claim: Claim, books: Books) -> Iterator[str]:
    expected = {COMMITTED: 1, COMPENSATED: 0}.get(claim.state)
    if expected is None:
        yield f"is {claim.state}: it has not ended"
        return
    for thing in THINGS:
        found = len(books.standing_of(claim.saga_id, thing.name))
        if found != expected:
            yield f"is {claim.state}, but {found} of {thing.name} stand in {thing.participant}, not {expected}"


def _output(claim: Claim, books: Books) -> Iterator[str]:
    for thing, thing_id in claim.output.items():
        if thing_id not in books.standing_of(claim.saga_id, thing):
            yield f"its output names the {thing} {thing_id!r}, which doesn't stand"


def _keys(claim: Claim, calls: Sequence[ServiceCall]) -> Iterator[str]:
    announced = {call.key for call in claim.calls}
    for key in dict.fromkeys(call.key for call in calls):
        same = sorted((call for call in calls if call.key == key), key=lambda call: call.begin_time)
        effects = sum(call.effect_made for call in same)
        if effects > 1:
            yield f"{key} made its effect {effects} times"
        if key not in announced:
            yield f"{key} was called, but the ledger never announced it"
        if any(_overlap(earlier, later) for earlier, later in pairwise(same)):
            yield f"{key} was called while a call with that key was still running"


def _overlap(earlier: ServiceCall, later: ServiceCall) -> bool:
    # A call that its caller gave up ends for the caller at once and for the service a little later, so its own end
    # proves nothing about who ran beside it.
    gave_up = earlier.outcome in {None, CANCELLED}
    return not gave_up and earlier.end_time is not None and later.begin_time < earlier.end_time


def _claimed_effects(claim: Claim, calls: Sequence[ServiceCall]) -> Iterator[str]:
    made = Counter(call.key for call in calls if call.effect_made)
    for intent in claim.calls:
        if (intent.direction, intent.state) == (ACTION, "SUCCEEDED") and made[intent.key] == 0:
            yield f"{intent.key} is said to have succeeded, but made no effect"


def _nothing_undone(calls: Iterable[ServiceCall]) -> Iterator[str]:
    for call in _effects(calls, COMPENSATION):
        yield f"is {COMMITTED}, but {call.step} was undone"


def _all_undone(calls: Sequence[ServiceCall]) -> Iterator[str]:
    made, undone = _effects(calls, ACTION), _effects(calls, COMPENSATION)
    undo_of = {call.step: call for call in undone}
    for action in made:
        undo = undo_of.get(action.step)
        if undo is None:
            yield f"is {COMPENSATED}, but {action.step} was never undone"
        elif undo.begin_time < action.begin_time:
            yield f"{action.step} was undone before it was made"
    order = [call.step for call in undone]
    expected = [call.step for call in reversed(made) if call.step in undo_of]
    if order != expected:
        yield f"was undone in the order {', '.join(order)}, not {', '.join(expected)}"
    for earlier, later in pairwise(undone):
        if earlier.end_time is None or later.begin_time < earlier.end_time:
            yield f"{later.step} was undone before the undoing of {earlier.step} had ended"


def _effects(calls: Iterable[ServiceCall], direction: str) -> list[ServiceCall]:
    made = [call for call in calls if call.effect_made and call.direction == direction]
    return sorted(made, key=lambda call: call.begin_time)
