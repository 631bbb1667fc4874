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
        "transfer/debit/action/abort-during",
        "transfer/credit/action/duplicate-later",
        "transfer/debit/compensation/reply-lost",
        "transfer/complete/action/soft-abort",
    ],
)
async def test_a_case_holds_over_a_network(name: str) -> None:
    """S2 to S6, S8, S10, and the author's own checks."""
    result = await play_over_grpc(ORDER if name.startswith("order/") else TRANSFER, name)
    assert result.consistent, result.told()
    assert result.met
