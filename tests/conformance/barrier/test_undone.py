"""Compensations and lookups: what they find, what they undo, and what they shut out for good (F03, F04)."""

from __future__ import annotations

import grpc
import pytest
from sqlalchemy.orm import Session

from amends import Rejected, current_step
from tests.conformance.barrier.stage import Stage, Step, write_effect
from timeline.v1 import timeline_pb2 as pb

OK, ABORTED = grpc.StatusCode.OK, grpc.StatusCode.ABORTED
NOT_FOUND, FAILED_PRECONDITION = grpc.StatusCode.NOT_FOUND, grpc.StatusCode.FAILED_PRECONDITION


async def test_a_compensation_is_given_the_actions_response(stage: Stage) -> None:
    """S4: every compensation of a barred action finds its work by the action's key, and undoes it once."""
    step = Step(saga_id="s-1")
    done = await stage.do(step)
    assert [(await stage.undo(step)).code for _ in range(2)] == [OK, OK]
    assert stage.rig.effects() == ["s-1", f"undone {done.effect_id}"]
    assert stage.rig.rows() == {"s-1/do/action": "done", "s-1/do/compensation": "done"}


async def test_f04_a_compensation_without_its_action_leaves_a_mark(stage: Stage) -> None:
    """F04, S4: it succeeds twice without its body, and the action that comes afterwards is refused for good."""
    step = Step(saga_id="s-1")
    assert [(await stage.undo(step)).code for _ in range(2)] == [OK, OK]
    for _ in range(2):
        late = await stage.do(step)
        assert (late.code, late.sealed) == (FAILED_PRECONDITION, True)
    assert stage.rig.effects() == []
    assert stage.rig.rows() == {"s-1/do/action": "null", "s-1/do/compensation": "done"}


async def test_f04_with_the_action_elsewhere_the_body_runs_once(stage: Stage) -> None:
    """F04, S4: nobody here knows of the action, so nothing is null: the body decides, once per compensation key."""
    step = Step(saga_id="s-1", target="other")
    assert [(await stage.undo(step)).code for _ in range(2)] == [OK, OK]
    assert stage.rig.effects() == ["undone elsewhere"]
    assert stage.rig.rows() == {"s-1/do/compensation": "done"}


async def test_a_refused_action_has_nothing_to_undo(stage: Stage) -> None:
    """S4: what was refused for good did not happen."""
    stage.handlers.do = refuse
    step = Step(saga_id="s-1")
    assert (await stage.do(step)).sealed
    assert (await stage.undo(step)).code is OK
    assert stage.rig.effects() == []


async def test_f03_a_lookup_seals_what_it_does_not_find(stage: Stage) -> None:
    """F03, S4, V2, V3: its NOT_FOUND is a promise, which the delayed action meets."""
    step = Step(saga_id="s-1")
    for _ in range(2):
        absent = await stage.find(step)
        assert (absent.code, absent.sealed) == (NOT_FOUND, True)
    late = await stage.do(step)
    assert (late.code, late.sealed) == (FAILED_PRECONDITION, True)
    assert stage.rig.effects() == []


async def test_a_lookup_finds_what_was_done(stage: Stage) -> None:
    """S4: its answer is the action's response."""
    step = Step(saga_id="s-1")
    done = await stage.do(step)
    assert (await stage.find(step)).response == done.response


async def test_a_lookup_of_a_retriable_step_never_seals(stage: Stage) -> None:
    """S6: nothing may refuse a step behind the point of no return for good."""
    step = Step(saga_id="s-1", kind="retriable")
    absent = await stage.find(step)
    assert (absent.code, absent.sealed) == (NOT_FOUND, False)
    done = await stage.do(step)
    assert (await stage.find(step)).response == done.response
    assert stage.rig.effects() == ["s-1"]


async def test_the_reason_to_abort_is_repeated(stage: Stage) -> None:
    """S4: done, but roll back: so say the first answer, its repetition and the lookup."""

    def body(session: object) -> pb.DoResponse:
        current_step().abort_saga("sold out meanwhile")
        return pb.DoResponse(effect_id="1")

    stage.handlers.do = body
    step = Step(saga_id="s-1")
    answers = [await stage.do(step), await stage.do(step), await stage.find(step)]
    assert [answer.code for answer in answers] == [OK, OK, OK]
    assert [answer.trailers.get("amends-abort-bin") for answer in answers] == [b"sold out meanwhile"] * 3


@pytest.mark.parametrize("kind", ["compensatable", "pivot"])
async def test_v11_a_refusal_is_kept(stage: Stage, kind: str) -> None:
    """V11, S4: sealed, the same for ever, also where it would succeed by now, and to the lookup; its work is gone."""
    stage.handlers.do = refuse
    step = Step(saga_id="s-1", kind=kind)
    first = await stage.do(step)
    stage.handlers.do = write_effect
    second = await stage.do(step)
    assert (first.code, first.text, first.sealed) == (grpc.StatusCode.OUT_OF_RANGE, "too much", True)
    assert second == first
    found = await stage.find(step)
    assert (found.code, found.sealed) == (NOT_FOUND, True)
    assert stage.rig.effects() == []
    assert stage.rig.rows() == {"s-1/do/action": "rejected"}


async def test_a_refusal_is_kept_whatever_its_text(stage: Stage) -> None:
    """S4: what a database can't store, or would not send, does not keep a no from being final."""

    def body(session: Session) -> pb.DoResponse:
        raise Rejected("no\0 way \ud800" + "y" * 5_000, reason="NO\0WAY")

    stage.handlers.do = body
    first, second = [await stage.do(Step(saga_id="s-1")) for _ in range(2)]
    assert (first.code, first.sealed) == (FAILED_PRECONDITION, True)
    assert first.text.startswith("no\N{REPLACEMENT CHARACTER} way ?yyy")
    assert second == first


@pytest.mark.parametrize("kind", ["retriable", "read_only"])
async def test_a_refusal_that_is_not_final_is_not_kept(stage: Stage, kind: str) -> None:
    """S4: steps that are repeated until they succeed, or that may be dropped: not sealed, and the next call runs."""
    stage.handlers.do = refuse
    step = Step(saga_id="s-1", kind=kind)
    refused = await stage.do(step)
    assert (refused.code, refused.sealed) == (grpc.StatusCode.OUT_OF_RANGE, False)
    stage.handlers.do = write_effect
    assert (await stage.do(step)).code is OK
    assert stage.rig.effects() == ["s-1"]


async def test_a_compensations_refusal_is_not_kept(stage: Stage) -> None:
    """S4: what is owed is tried again."""
    step = Step(saga_id="s-1")
    done = await stage.do(step)
    stage.handlers.undo, undo = refuse, stage.handlers.undo
    refused = await stage.undo(step)
    assert (refused.code, refused.sealed) == (grpc.StatusCode.OUT_OF_RANGE, False)
    stage.handlers.undo = undo
    assert (await stage.undo(step)).code is OK
    assert stage.rig.effects() == ["s-1", f"undone {done.effect_id}"]


def refuse(session: Session) -> pb.DoResponse:
    """Do something, then say no."""
    write_effect(session)
    raise Rejected("too much", reason="TOO_MUCH", code=grpc.StatusCode.OUT_OF_RANGE)
