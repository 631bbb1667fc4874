"""A spread of all faults at the shop's orders and the bank's transfers; `make fault-matrix` tries every one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.faults.bank_world import TRANSFER
from tests.faults.shop_world import ORDER

if TYPE_CHECKING:
    from amends.testing import MatrixCase


@pytest.mark.fault_matrix(ORDER, every=9)
def test_an_order_leaves_the_shop_consistent(fault_case: MatrixCase) -> None:
    """S2 to S6, S8, S10, S12, L1, and the shop's own: all of an order stands, or nothing of it."""
    fault_case.run()


@pytest.mark.fault_matrix(TRANSFER, every=9)
def test_a_transfer_leaves_the_money_somewhere(fault_case: MatrixCase) -> None:
    """S2 to S6, S8, S10, S12, L1, and the banks' own: no money is gone, or there twice."""
    fault_case.run()
