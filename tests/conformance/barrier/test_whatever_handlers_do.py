"""Nothing that a handler does to an exception or to its session makes half of its work true, or an answer false."""

from __future__ import annotations

import grpc
import pytest
from sqlalchemy import text
from sqlalchemy.orm import Session

from amends import Rejected, TryLater, barrier
from tests.conformance.barrier.stage import EFFECTS, Stage, Step, write_effect
from timeline.v1 import timeline_pb2 as pb

OK, UNKNOWN = grpc.StatusCode.OK, grpc.StatusCode.UNKNOWN
STEP = Step(saga_id="s-1")


async def is_undone_and_runs_again(stage: Stage) -> None:
    """The call proved nothing and left nothing; a repetition with a sane body succeeds."""
    answer = await stage.do(STEP)
    assert answer.code is UNKNOWN, answer
    assert (stage.rig.effects(), stage.rig.rows()) == ([], {})
    stage.handlers.do, stage.handlers.swallowed, stage.handlers.blocks = write_effect, (), 1
    assert (await stage.do(STEP)).code is OK
    assert stage.rig.effects() == ["s-1"]


async def test_an_exception_rolls_back(stage: Stage) -> None:
    """S4: an unexpected end proves nothing, and leaves nothing."""
    stage.handlers.do = fail
    await is_undone_and_runs_again(stage)


async def test_a_swallowed_exception_rolls_back(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    """S4: the block was left by an exception, so its work is not whole, whatever the handler made of it."""
    stage.handlers.do, stage.handlers.swallowed = fail, (BaseException,)
    await is_undone_and_runs_again(stage)
    assert "ValueError left the barrier's block" in caplog.text


async def test_a_swallowed_refusal_is_the_answer(stage: Stage) -> None:
    """S4: `except BaseException` around the block can't turn a no into a yes."""
    stage.handlers.do, stage.handlers.swallowed = refuse, (BaseException,)
    answer = await stage.do(STEP)
    assert (answer.code, answer.sealed) == (grpc.StatusCode.FAILED_PRECONDITION, True)
    assert (stage.rig.effects(), stage.rig.rows()) == ([], {"s-1/do/action": "rejected"})


async def test_not_now_rolls_back_and_says_so(stage: Stage) -> None:
    """S4: nothing was begun, also where the handler swallowed it; the next call runs."""
    for swallowed in ((), (BaseException,)):
        stage.handlers.do, stage.handlers.swallowed = put_off, swallowed
        answer = await stage.do(STEP)
        assert (answer.code, answer.trailers["amends-executed"]) == (grpc.StatusCode.UNAVAILABLE, "no")
        assert (stage.rig.effects(), stage.rig.rows()) == ([], {})
    stage.handlers.do = write_effect
    assert (await stage.do(STEP)).code is OK


async def test_a_known_key_is_answered_whatever_the_handler_swallows(stage: Stage) -> None:
    """S2, F03: neither the stored response nor the refusal of a hanging action can be caught away."""
    done = await stage.do(STEP)
    stage.handlers.swallowed = (BaseException,)
    assert (await stage.do(STEP)).response == done.response != b""
    undone = Step(saga_id="s-2")
    await stage.undo(undone)
    assert (await stage.do(undone)).sealed


async def test_a_refusal_in_grpcs_own_way_is_kept(stage: Stage) -> None:
    """S4: `context.abort` with a code that says no is a refusal like one that was raised."""
    stage.handlers.aborted = grpc.StatusCode.OUT_OF_RANGE
    answer = await stage.do(STEP)
    assert (answer.code, answer.text) == (grpc.StatusCode.OUT_OF_RANGE, "too much")
    stage.handlers.aborted = None
    again = await stage.do(STEP)
    assert (again.code, again.text, again.sealed) == (grpc.StatusCode.OUT_OF_RANGE, "too much", True)
    assert (stage.rig.effects(), stage.rig.rows()) == ([], {"s-1/do/action": "rejected"})


async def test_another_code_in_grpcs_own_way_rolls_back(stage: Stage) -> None:
    """S4: it proves nothing."""
    stage.handlers.aborted = grpc.StatusCode.INTERNAL
    assert (await stage.do(STEP)).code is grpc.StatusCode.INTERNAL
    assert (stage.rig.effects(), stage.rig.rows()) == ([], {})


async def test_one_call_has_one_block(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    """S2: a second transaction would not become true together with the first."""
    stage.handlers.blocks = 2
    await is_undone_and_runs_again(stage)
    assert "this call has a barrier already" in caplog.text


async def test_the_commit_is_the_barriers(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    """S2: the user's own commit would make work true whose response nobody has yet."""

    def body(session: Session) -> pb.DoResponse:
        response = write_effect(session)
        session.commit()
        return response

    stage.handlers.do = body
    await is_undone_and_runs_again(stage)
    assert "leave the commit out" in caplog.text


@pytest.mark.parametrize("ended", [Session.rollback, Session.close, Session.reset])
async def test_a_transaction_that_was_ended_is_noticed(
    stage: Stage, ended: object, caplog: pytest.LogCaptureFixture
) -> None:
    """S2: what was done before it is gone, and what is done after it would have no guard row."""

    def body(session: Session) -> pb.DoResponse:
        write_effect(session)
        assert callable(ended)
        ended(session)
        return write_effect(session)

    stage.handlers.do = body
    await is_undone_and_runs_again(stage)
    assert "was ended inside the barrier's block" in caplog.text


async def test_a_statement_that_failed_and_was_swallowed(stage: Stage) -> None:
    """S4: PostgreSQL rolls the whole transaction back at its commit then, without a word; nobody says it succeeded."""

    def body(session: Session) -> pb.DoResponse:
        response = write_effect(session)
        with pytest.raises(Exception, match="nowhere"):
            session.execute(text("SELECT * FROM nowhere"))
        return response

    stage.handlers.do = body
    if stage.rig.on_postgres:
        await is_undone_and_runs_again(stage)
    else:
        assert (await stage.do(STEP)).code is OK
        assert stage.rig.effects() == ["s-1"]


async def test_savepoints_are_the_handlers_own(stage: Stage) -> None:
    """A part can be undone, and the rest stays."""

    def body(session: Session) -> pb.DoResponse:
        with session.begin_nested():
            response = write_effect(session)
        with session.begin_nested() as part:
            write_effect(session)
            part.rollback()
        return response

    stage.handlers.do = body
    assert (await stage.do(STEP)).code is OK
    assert stage.rig.effects() == ["s-1"]


async def test_something_can_be_done_before_the_commit(stage: Stage) -> None:
    """It is part of the transaction, and only of one that becomes true."""

    def body(session: Session) -> pb.DoResponse:
        barrier.before_commit(lambda session: session.execute(EFFECTS.insert().values(name="told")))
        return write_effect(session)

    def failing(session: Session) -> pb.DoResponse:
        barrier.before_commit(fail)
        return write_effect(session)

    stage.handlers.do = failing
    assert (await stage.do(STEP)).code is UNKNOWN
    assert stage.rig.effects() == []
    stage.handlers.do = body
    assert [(await stage.do(STEP)).code for _ in range(2)] == [OK, OK]
    assert stage.rig.effects() == ["s-1", "told"]


def fail(session: Session) -> pb.DoResponse:
    """Do something, then fail."""
    write_effect(session)
    raise ValueError("out of order")


def refuse(session: Session) -> pb.DoResponse:
    """Do something, then say no."""
    write_effect(session)
    raise Rejected("too much")


def put_off(session: Session) -> pb.DoResponse:
    """Do something, then say not now."""
    write_effect(session)
    raise TryLater("in a minute")
