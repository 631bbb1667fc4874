"""Some cases of the fault matrix over real gRPC, in real time: what holds on virtual time holds there too."""

from __future__ import annotations

import pytest

from tests.faults.bank_world import TRANSFER
from tests.faults.over_grpc import play_over_grpc
from tests.faults.shop_world import ORDER


@pytest.mark.parametrize(
    "name",
    [
        "order/reserve/action/reply-lost",
        "order/authorize/action/duplicate-at-once",
        "order/create_order/action/duplicate-after-undo",
        "order/reserve/compensation/garbage-reply",
        "order/capture/action/abort-during",
    ],
)
async def test_an_order_leaves_the_shop_consistent(name: str) -> None:
    """S2 to S6, S8, S10, and the shop's own."""
    result = await play_over_grpc(ORDER, name)
    assert result.consistent, result.told()
    assert result.met


@pytest.mark.parametrize(
    "name",
    [
        "transfer/debit/action/abort-during",
        "transfer/credit/action/duplicate-later",
        "transfer/debit/compensation/reply-lost",
        "transfer/complete/action/soft-abort",
    ],
)
async def test_a_transfer_leaves_the_money_somewhere(name: str) -> None:
    """S2 to S6, S8, S10, and the banks' own."""
    result = await play_over_grpc(TRANSFER, name)
    assert result.consistent, result.told()
    assert result.met
