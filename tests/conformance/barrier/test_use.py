"""A barrier that is used wrongly says so, and which line to change."""

from __future__ import annotations

import subprocess
import sys

import grpc
import pytest
from sqlalchemy import create_engine
from sqlalchemy.orm import sessionmaker

from amends import StepContext, barrier
from amends.participant import step_context
from tests.conformance.barrier.stage import Rig, Stage, Step, staged

STEP = Step(saga_id="s-1")


async def test_outside_of_a_handler(rig: Rig) -> None:
    """S2: there is no response that the work could become true with."""
    with pytest.raises(barrier.BarrierUseError, match="only inside the handler"):
        await entered(rig)
    with pytest.raises(barrier.BarrierUseError, match=r"there is no barrier\.transaction"):
        barrier.before_commit(lambda session: None)


async def test_where_nobody_waits_for_its_end(rig: Rig) -> None:
    """S2: a step alone is not enough."""
    with (
        step_context(StepContext.from_metadata(STEP.metadata("action"))),
        pytest.raises(barrier.BarrierUseError, match="nothing waits for its end"),
    ):
        await entered(rig)


async def test_the_blocking_of_session(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    """L2: a blocking session would hold up every other call of the participant."""
    if rig.plain:
        pytest.skip("a plain `def` has no `async with`, so it can't be given an async_sessionmaker")
    async with staged(rig) as stage:
        stage.handlers.blocking = sessionmaker(create_engine("sqlite://"))
        assert (await stage.do(STEP)).code is grpc.StatusCode.UNKNOWN
    assert "would block every other call" in caplog.text


async def test_in_a_lookup(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    """S4: a lookup only says what became of the action; the text names what does that."""
    assert (await stage.do(STEP, direction="lookup")).code is grpc.StatusCode.UNKNOWN
    assert "`return await barrier.lookup(sessions, ResponseType)`" in caplog.text
    assert stage.rig.rows() == {}


async def test_a_lookup_that_is_none(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    """S4: an action must not be answered like a lookup."""
    assert (await stage.find(STEP, direction="action")).code is grpc.StatusCode.UNKNOWN
    assert "use barrier.transaction" in caplog.text
    assert stage.rig.rows() == {}


async def test_a_failed_lookup_is_not_made_up(stage: Stage) -> None:
    """S4: a handler that swallows the failure of its lookup can't say that the action succeeded."""
    stage.handlers.swallowed = (BaseException,)
    assert (await stage.find(STEP, direction="action")).code is grpc.StatusCode.UNKNOWN
    assert (await stage.find(STEP)).code is grpc.StatusCode.NOT_FOUND


async def test_another_database(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    """S2: how claims wait for each other is known of two databases; others are refused before anything is done."""
    stage.rig.engine.dialect.name = "mariadb"
    assert (await stage.do(STEP)).code is grpc.StatusCode.UNKNOWN
    assert "the barrier knows PostgreSQL and SQLite" in caplog.text
    assert (stage.rig.effects(), stage.rig.rows()) == ([], {})


@pytest.mark.parametrize("missing", ["sqlalchemy", "greenlet"])
@pytest.mark.parametrize("package", ["barrier", "outbox"])
def test_without_its_extra_it_says_what_to_install(package: str, missing: str) -> None:
    """Plain amends does not bring SQLAlchemy, and the coordinator's extra not all of it."""
    program = f"import sys; sys.modules['{missing}'] = None; import amends.{package}"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "pip install 'amends[barrier]'" in ended.stderr.splitlines()[-1]


async def entered(rig: Rig) -> None:
    """Enter a block."""
    if isinstance(rig.sessions, sessionmaker):
        with barrier.transaction(rig.sessions):
            raise AssertionError
    async with barrier.transaction(rig.sessions):
        raise AssertionError
