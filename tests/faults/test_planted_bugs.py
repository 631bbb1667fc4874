"""Does the fault matrix find what it is for? One planted bug after the other, and the failure that must tell of it."""

from __future__ import annotations

import pytest

from amends.testing import FaultMatrix
from amends.testing.matrix import AnyMatrix
from bank.saga import transfer
from shop.saga import order
from tests.faults.bank_world import RENT
from tests.faults.planted import (
    EffectBeforeGuardWorld,
    ForgetsWhatNeverCameWorld,
    MayRefuseToCaptureWorld,
    RefundsEachTimeWorld,
    RemembersByHeartWorld,
    WithoutBarrierWorld,
)
from tests.faults.shop_world import TEAPOT

WITHOUT_BARRIER = FaultMatrix(order, input=TEAPOT, world=WithoutBarrierWorld)
REMEMBERS_BY_HEART = FaultMatrix(order, input=TEAPOT, world=RemembersByHeartWorld)
REFUNDS_EACH_TIME = FaultMatrix(transfer, input=RENT, world=RefundsEachTimeWorld)
FORGETS_WHAT_NEVER_CAME = FaultMatrix(order, input=TEAPOT, world=ForgetsWhatNeverCameWorld)
MAY_REFUSE_TO_CAPTURE = FaultMatrix(order, input=TEAPOT, world=MayRefuseToCaptureWorld)
EFFECT_BEFORE_GUARD = FaultMatrix(order, input=TEAPOT, world=EffectBeforeGuardWorld)


@pytest.mark.parametrize(
    ("matrix", "case", "step", "fault", "wrong"),
    [
        pytest.param(
            WITHOUT_BARRIER,
            "order/reserve/action/reply-lost",
            "reserve, action",
            "the work is done, and the first reply is lost",
            "2 of reservation stand",
            id="no-barrier",
        ),
        pytest.param(
            REMEMBERS_BY_HEART,
            "order/reserve/action/participant-dies-before-reply",
            "reserve, action",
            "the participant's process dies before it replies",
            "2 of reservation stand",
            id="keys-in-memory",
        ),
        pytest.param(
            REMEMBERS_BY_HEART,
            "order/reserve/action/duplicate-later",
            "reserve, action",
            "a copy of the request arrives after the saga's end",
            "2 of reservation stand",
            id="keys-in-memory-later",
        ),
        pytest.param(
            REFUNDS_EACH_TIME,
            "transfer/debit/compensation/reply-lost",
            "debit, compensation",
            "the work is done, and the first reply is lost",
            "12500 are on the account of bank-a, not 10000",
            id="refund-not-idempotent",
        ),
        pytest.param(
            FORGETS_WHAT_NEVER_CAME,
            "order/reserve/action/late-arrival",
            "reserve, action",
            "the first does after the saga's end",
            "1 of reservation stand",
            id="null-ignored",
        ),
        pytest.param(
            MAY_REFUSE_TO_CAPTURE,
            "order/capture/action/down-until-timeout",
            "capture, action",
            "nobody is there to be called until the saga's timeout is over",
            "L1: the saga is RUNNING and never ends",
            id="refuses-behind-the-pivot",
        ),
        pytest.param(
            EFFECT_BEFORE_GUARD,
            "order/reserve/action/participant-dies-before-commit",
            "reserve, action",
            "the participant's process dies",
            "pieces of stock are neither free nor held",
            id="effect-before-guard",
        ),
    ],
)
def test_a_planted_bug_is_found(matrix: AnyMatrix, case: str, step: str, fault: str, wrong: str) -> None:
    """The failure names the step and the fault, and says what is wrong; without a fault nothing is."""
    assert matrix.run(matrix.cases()[0]).consistent
    result = matrix.run(case)
    assert result.met
    assert not result.consistent
    told = result.told()
    assert told.startswith(f"{case}: ")
    assert f"step    {step}" in told
    assert fault in told
    assert wrong in told
