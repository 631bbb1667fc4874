"""The comparison of claims and books finds nothing in order, and finds every planted contradiction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from shop.demo.audit import Finding, audit
from shop.demo.books import Books, ServiceCall, Standing
from shop.demo.claims import Claim
from shop.demo.show import last_line
from tests.participants.ledgers import STEPS, committed, compensated, instant, repeated, service_call

Spoil = Callable[[Claim, Books], tuple[Claim, Books]]


def with_calls(books: Books, change: Callable[[ServiceCall], ServiceCall]) -> Books:
    """The books with every call changed."""
    return replace(books, calls=tuple(map(change, books.calls)))


def only(
    step: str, direction: str, change: Callable[[ServiceCall], ServiceCall]
) -> Callable[[ServiceCall], ServiceCall]:
    """Changes the call of one step and direction, and leaves the others."""
    return lambda call: change(call) if (call.step, call.direction) == (step, direction) else call


def test_consistent_books_have_no_findings() -> None:
    """S3, S4: two sagas that ended as they claim."""
    (done, done_books), (undone, undone_books) = committed(), compensated()
    books = Books(
        calls=done_books.calls + undone_books.calls,
        standing=done_books.standing + undone_books.standing,
        stock_gaps={"teapot": 0},
    )
    assert audit([done, undone], books) == ()
    assert last_line([done, undone], ()) == "demo: sagas=2 committed=1 compensated=1 inconsistent=0"


def test_a_repeated_call_that_is_answered_from_memory_is_consistent() -> None:
    """S2: the first answer came too late, the second call had no effect of its own."""
    claim, books = committed()
    late = next(call for call in books.calls if call.step == "authorize")
    given_up = replace(late, outcome="CANCELLED", end_time=instant(28))
    calls = (
        *(given_up if call is late else call for call in books.calls),
        repeated(late, second=27, effect_made=False),
    )
    assert audit([claim], replace(books, calls=calls)) == ()


def double_authorization(claim: Claim, books: Books) -> tuple[Claim, Books]:
    """The second attempt authorised again."""
    first = next(call for call in books.calls if call.step == "authorize")
    second = Standing(thing="authorization", saga_id=claim.saga_id, thing_id="auth-2")
    return claim, replace(
        books,
        calls=(*books.calls, repeated(first, second=26, effect_made=True)),
        standing=(*books.standing, second),
    )


def double_effect_that_left_one_row(claim: Claim, books: Books) -> tuple[Claim, Books]:
    """Only the journal shows that the work was done twice."""
    first = next(call for call in books.calls if call.step == "authorize")
    return claim, replace(books, calls=(*books.calls, repeated(first, second=26, effect_made=True)))


def nothing_was_shipped(claim: Claim, books: Books) -> tuple[Claim, Books]:
    """The shipment that the saga claims is not there."""
    return claim, replace(books, standing=tuple(row for row in books.standing if row.thing != "shipment"))


def undone_although_committed(claim: Claim, books: Books) -> tuple[Claim, Books]:
    """A compensation ran in a committed saga."""
    undo = service_call("payments", "authorize", saga_id=claim.saga_id, second=70, direction="compensation")
    return claim, replace(books, calls=(*books.calls, undo))


def called_without_intent(claim: Claim, books: Books) -> tuple[Claim, Books]:
    """S1: the ledger has no row for a call that reached a service."""
    return replace(claim, calls=tuple(call for call in claim.calls if call.step != "notify")), books


def succeeded_without_effect(claim: Claim, books: Books) -> tuple[Claim, Books]:
    """The ledger calls an action succeeded that the service never did."""
    return claim, with_calls(
        books, only("notify", "action", lambda call: replace(call, effect_made=False, outcome="refused"))
    )


def two_calls_at_once(claim: Claim, books: Books) -> tuple[Claim, Books]:
    """S2: a second call came while the first was still running and wanted."""
    first = next(call for call in books.calls if call.step == "authorize")
    return claim, replace(books, calls=(*books.calls, repeated(first, second=22, effect_made=False)))


def still_running(claim: Claim, books: Books) -> tuple[Claim, Books]:
    """The saga never ended."""
    return replace(claim, state="RUNNING"), books


def waits_for_a_person(claim: Claim, books: Books) -> tuple[Claim, Books]:
    """A dead letter is open."""
    return replace(claim, attention_required=True), books


def wrong_output(claim: Claim, books: Books) -> tuple[Claim, Books]:
    """The saga told its client of an order that is not there."""
    return replace(claim, output={"order": "order-of-nobody"}), books


@pytest.mark.parametrize(
    "spoil",
    [
        double_authorization,
        double_effect_that_left_one_row,
        nothing_was_shipped,
        undone_although_committed,
        called_without_intent,
        succeeded_without_effect,
        two_calls_at_once,
        still_running,
        waits_for_a_person,
        wrong_output,
    ],
)
def test_a_spoilt_committed_saga_is_found(spoil: Spoil) -> None:
    """S3: each planted contradiction makes the saga inconsistent."""
    claim, books = spoil(*committed())
    findings = audit([claim], books)
    assert {finding.subject for finding in findings} == {claim.saga_id}
    assert last_line([claim], findings).endswith(" inconsistent=1")


def never_undone(claim: Claim, books: Books) -> tuple[Claim, Books]:
    """The authorisation was never voided."""
    return claim, with_calls(books, only("authorize", "compensation", lambda call: replace(call, effect_made=False)))


def undone_twice(claim: Claim, books: Books) -> tuple[Claim, Books]:
    """The stock was put back twice."""
    undo = next(call for call in books.calls if (call.step, call.direction) == ("reserve", "compensation"))
    return claim, replace(books, calls=(*books.calls, repeated(undo, second=56, effect_made=True)))


def oldest_first(claim: Claim, books: Books) -> tuple[Claim, Books]:
    """The order was cancelled before the authorisation was voided."""
    early = only(
        "create_order", "compensation", lambda call: replace(call, begin_time=instant(36), end_time=instant(37))
    )
    return claim, with_calls(books, early)


def undone_before_it_was_made(claim: Claim, books: Books) -> tuple[Claim, Books]:
    """The void came before the authorisation."""
    early = only("authorize", "compensation", lambda call: replace(call, begin_time=instant(18), end_time=instant(19)))
    return claim, with_calls(books, early)


def side_by_side(claim: Claim, books: Books) -> tuple[Claim, Books]:
    """S5: a compensation began before the newer one had ended."""
    return claim, with_calls(books, only("authorize", "compensation", lambda call: replace(call, end_time=instant(55))))


def something_stands(claim: Claim, books: Books) -> tuple[Claim, Books]:
    """A reservation is still held."""
    return claim, replace(books, standing=(Standing(thing="reservation", saga_id=claim.saga_id, thing_id="res-1"),))


@pytest.mark.parametrize(
    "spoil",
    [never_undone, undone_twice, oldest_first, undone_before_it_was_made, side_by_side, something_stands],
)
def test_a_spoilt_compensated_saga_is_found(spoil: Spoil) -> None:
    """S4, S5: each planted contradiction makes the saga inconsistent."""
    claim, books = spoil(*compensated())
    assert {finding.subject for finding in audit([claim], books)} == {claim.saga_id}


def test_a_stranger_in_the_books_is_found() -> None:
    """S1: rows and calls of a saga that nobody claims."""
    (claim, books), (_, strange) = committed(), committed("saga-9")
    both = replace(books, calls=books.calls + strange.calls, standing=books.standing + strange.standing)
    assert audit([claim], both) == (Finding("saga-9", "is in the books, but no saga claims it"),)


def test_missing_stock_is_found() -> None:
    """The shelf does not add up."""
    claim, books = committed()
    found = audit([claim], replace(books, stock_gaps={"teapot": 0, "kettle": 2}))
    assert found == (Finding("kettle", "2 pieces are neither free nor held"),)


def test_every_step_of_the_claims_is_covered() -> None:
    """The made-up sagas have one call per step, so that no rule passes for want of calls."""
    claim, books = committed()
    assert [call.step for call in books.calls] == [step for _, step in STEPS] == [call.step for call in claim.calls]
