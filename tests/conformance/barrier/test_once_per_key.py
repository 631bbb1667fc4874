"""What an action's key stands for: one request, carried out once, answered alike for ever."""

from __future__ import annotations

import grpc

from tests.conformance.barrier.stage import Stage, Step

OK, ABORTED, UNKNOWN = grpc.StatusCode.OK, grpc.StatusCode.ABORTED, grpc.StatusCode.UNKNOWN


async def test_the_work_of_a_key_is_done_once(stage: Stage) -> None:
    """S2: a repeated call is answered from the row, with the original response."""
    step = Step(saga_id="s-1")
    first, second = await stage.do(step), await stage.do(step)
    assert (first.code, second.code) == (OK, OK)
    assert first.response == second.response
    assert stage.rig.effects() == ["s-1"]
    assert stage.rig.rows() == {"s-1/do/action": "done"}


async def test_ledgers_have_keys_of_their_own(stage: Stage) -> None:
    """S2: staging and production may share a participant."""
    for ledger in ("production", "staging"):
        assert (await stage.do(Step(saga_id="s-1", ledger=ledger))).code is OK
    assert stage.rig.effects() == ["s-1", "s-1"]
