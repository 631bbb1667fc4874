"""What a fault matrix judges beside the promises: what an author forbids, and checks that fail in whatever way."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from amends.testing import FaultMatrix, FaultMatrixFailure, MatrixCase, Trait
from bank.saga import transfer
from tests.faults.bank_world import RENT, TRANSFER, BankWorld

if TYPE_CHECKING:
    from amends.testing import End


class DispleasedWorld(BankWorld):
    """A world whose author fails the test as pytest does, which is no `Exception`."""

    async def check(self, end: End) -> None:
        """Nothing is ever right."""
        pytest.fail("this is not what I meant")


class SilentWorld(BankWorld):
    """A world whose check fails without a word."""

    async def check(self, end: End) -> None:
        """Says nothing."""
        raise LookupError


def test_an_end_that_needed_a_person_may_be_forbidden() -> None:
    """L1 allows it; an author need not."""
    case = "transfer/complete/action/refused-until-parked"
    assert TRANSFER.run(case).consistent
    strict = FaultMatrix(transfer, input=RENT, world=BankWorld, forbid=[Trait.PARKED])
    result = strict.run(case)
    assert result.findings == ("the saga waited for a person, which this matrix forbids",)
    assert result.end == "COMMITTED, after an operator's retry"


def test_an_end_that_this_fault_can_not_lead_to() -> None:
    """S12: what goes over by itself leads no saga back."""
    case = TRANSFER.case("transfer/debit/action/rejected")
    wrong = replace(case, ends=frozenset({"COMMITTED"}))
    assert TRANSFER.run(wrong).findings == ("this fault must lead to COMMITTED, and the saga is COMPENSATED",)


def test_a_check_that_fails_in_pytests_own_way() -> None:
    """It is told like an assertion, and the test fails with the whole story."""
    matrix = FaultMatrix(transfer, input=RENT, world=DispleasedWorld)
    with pytest.raises(FaultMatrixFailure, match="this is not what I meant"):
        MatrixCase(matrix, matrix.case("transfer/no-fault")).run()


def test_a_check_that_says_nothing() -> None:
    """Then its line speaks for it."""
    (finding,) = FaultMatrix(transfer, input=RENT, world=SilentWorld).run("transfer/no-fault").findings
    assert finding.startswith("the author's check: LookupError: raise LookupError\ntests/faults/test_judging.py:")


def test_the_same_seed_is_the_same_play() -> None:
    """Chance included: pauses between attempts, and what a killed coordinator leaves behind."""
    case = "transfer/debit/action/killed-after-effect"
    first, again, other = (TRANSFER.run(case, seed=seed) for seed in (3, 3, 4))
    assert first == replace(again, case=first.case)
    assert TRANSFER.run("transfer/debit/action/reply-lost", seed=3).timeline != other.timeline


def test_a_case_that_can_not_go_wrong_is_told_to_the_test() -> None:
    """So that the plugin can skip it instead of calling it good."""
    told: list[str] = []
    case = replace(
        TRANSFER.case("transfer/no-fault"), troubles=TRANSFER.case("transfer/debit/lookup/reply-lost").troubles
    )
    never = replace(case, troubles=lambda: case.troubles()[:1])
    MatrixCase(TRANSFER, never, unmet=told.append).run()
    assert told == ["what goes wrong in transfer/no-fault never could"]
