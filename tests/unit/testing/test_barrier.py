"""Rehearsals of a participant under a barrier: what is in its database afterwards is what the promises say."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from sqlalchemy import Column, Integer, MetaData, String, Table, select
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine

from amends import Committed, Compensated, barrier, current_step
from amends.testing import Answer, CallSite, NoFault, Outcome, Rehearsal, run
from scenario.v1.scenario_pb2 import DoRequest, DoResponse, ScenarioInput, UndoRequest, UndoResponse
from tests.scenarios.sagas import steps
from tests.unit.testing.stage import At, Steps

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable
    from pathlib import Path

    from tests.unit.testing.stage import Context

TABLES = MetaData()
WORK = Table("work", TABLES, Column("id", Integer, primary_key=True), Column("what", String))

INPUT = ScenarioInput(amount=7)
LOST = Answer(outcome=Outcome.UNKNOWN, status_code="UNAVAILABLE", message="lost")


class Barred(Steps):
    """Does its work under a barrier, in a database."""

    def __init__(self, sessions: async_sessionmaker[AsyncSession], *, refuses: set[str] | None = None) -> None:
        super().__init__(refuses=refuses or set())
        self._sessions = sessions

    async def Do(self, request: DoRequest, context: Context) -> DoResponse:
        """An action."""
        async with barrier.transaction(self._sessions) as session:
            response = await super().Do(request, context)
            await session.execute(WORK.insert().values(what=request.name))
            return response

    async def Undo(self, request: UndoRequest, context: Context) -> UndoResponse:
        """A compensation."""
        async with barrier.transaction(self._sessions) as session:
            assert current_step().action_response is not None
            await session.execute(WORK.insert().values(what=f"-{request.name}"))
            return await super().Undo(request, context)

    async def work(self) -> list[str]:
        """What has become true."""
        async with self._sessions() as session:
            return list(await session.scalars(select(WORK.c.what).order_by(WORK.c.id)))


@asynccontextmanager
async def database(folder: Path) -> AsyncGenerator[async_sessionmaker[AsyncSession]]:
    """A participant's database."""
    engine = create_async_engine(f"sqlite+aiosqlite:///{folder / 'work.db'}")
    async with engine.begin() as connection:
        await connection.run_sync(TABLES.create_all)
        await connection.run_sync(barrier.TABLES.create_all)
    yield async_sessionmaker(engine)
    await engine.dispose()


def test_two_copies_at_once_run_once(tmp_path: Path) -> None:
    """The second one waits for the first, and both answer the same."""

    async def double(site: CallSite, send: Callable[[], Awaitable[Answer]]) -> Answer:
        first, second = await asyncio.gather(send(), send())
        assert first == second
        return second

    async def main() -> None:
        async with database(tmp_path) as sessions:
            servicer = Barred(sessions)
            async with Rehearsal({"steps": [servicer]}, fault=At("a/action", double)) as rehearsal:
                assert isinstance(await rehearsal.run(steps("a"), INPUT), Committed), rehearsal.timeline()
            assert await servicer.work() == servicer.done == ["a"]

    run(main)


def test_a_process_that_dies_before_it_commits_did_nothing(tmp_path: Path) -> None:
    """The guard row is gone with the work, so the next attempt does it."""

    class Dying(NoFault):
        def commit(self, site: CallSite) -> None:
            if site.attempt == 1:
                raise RuntimeError("dies here")

    async def main() -> None:
        async with database(tmp_path) as sessions:
            servicer = Barred(sessions, refuses={"b"})
            async with Rehearsal({"steps": [servicer]}, fault=Dying()) as rehearsal:
                assert isinstance(await rehearsal.run(steps("a", "b"), INPUT), Compensated), rehearsal.timeline()
            assert servicer.done == ["a", "a", "-a", "-a"]
            assert await servicer.work() == ["a", "-a"]

    run(main)


def test_an_action_that_arrives_after_its_undo_is_refused(tmp_path: Path) -> None:
    """A null compensation leaves a mark, and the hanging action finds it, an hour later."""

    async def main() -> None:
        late: list[Answer] = []

        async def hold_back(site: CallSite, send: Callable[[], Awaitable[Answer]]) -> Answer:
            async def arrive() -> None:
                await asyncio.sleep(3_600)
                late.append(await send())

            fault.rehearsal.later(arrive())
            await fault.rehearsal.client.abort("s-1")
            return LOST

        fault = At("a/action", hold_back)
        async with database(tmp_path) as sessions:
            servicer = Barred(sessions)
            async with Rehearsal({"steps": [servicer]}, fault=fault) as rehearsal:
                fault.rehearsal = rehearsal
                end = await rehearsal.run(steps("a", by_key=True), INPUT, saga_id="s-1")
                assert isinstance(end, Compensated), rehearsal.timeline()
                await asyncio.sleep(4_000)
            assert [answer.outcome for answer in late] == [Outcome.REJECTED_SEALED]
            assert servicer.done == await servicer.work() == []

    run(main)
