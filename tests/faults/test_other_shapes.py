"""Faults at sagas of another shape than the shop's orders: what they alone can come to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.faults.other_shapes import GIFT

if TYPE_CHECKING:
    from amends.testing import MatrixCase


@pytest.mark.fault_matrix(GIFT, every=29)
def test_a_gift_leaves_the_shop_consistent(fault_case: MatrixCase) -> None:
    """S2 to S6, S8, S10, S12, L1 with steps side by side, one called at most once, no pivot, and a letter."""
    fault_case.run()


@pytest.mark.parametrize(
    "name",
    [
        "gift/note/action/down-until-timeout",
        "gift/card/action/duplicate-after-undo",
        "gift/tell/action/killed-before-intent",
        "gift/apologise/action/request-lost-until-parked",
    ],
)
def test_what_once_went_wrong(name: str) -> None:
    """L1: a letter is sent also where the saga's timeout is over; and what a lost record of such steps may lead to."""
    result = GIFT.run(name)
    assert result.consistent, result.told()
    assert result.met
