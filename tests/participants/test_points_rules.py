"""The rules of the barrier, kept by hand in Go and by the SDK in the example of docs/barrier.md: the same calls in the
same order get the same answers from both, on the same database.
"""

from __future__ import annotations

import asyncio
import signal
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from importlib.util import module_from_spec, spec_from_file_location
from typing import TYPE_CHECKING, Protocol, cast

import grpc
import pytest
import pytest_asyncio
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine

from amends import ParticipantServer, barrier
from points.v1.points_pb2 import GiveBackResponse, SpendResponse
from tests.docs.pages import CHECKOUT, named_files
from tests.participants.go_points import PointsProcess, built
from tests.participants.points_calls import BEGUN_WITH, Books, Metadata, Refused, Step
from tests.participants.serving import NO_COORDINATOR
from tests.waiting import eventually, pause

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator
    from pathlib import Path

    from sqlalchemy.ext.asyncio import AsyncSession
    from sqlalchemy.orm import DeclarativeBase

    from points.v1.points_pb2_grpc import PointsServiceServicer
    from tests.postgres import PostgresServer

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(600)]

GONE = Refused(code=grpc.StatusCode.FAILED_PRECONDITION, sealed=True)
NEVER = Refused(code=grpc.StatusCode.NOT_FOUND, sealed=True)
NOT_YET = Refused(code=grpc.StatusCode.NOT_FOUND)
NOBODY_KNOWS = Refused(code=grpc.StatusCode.ABORTED)

END_SESSIONS = b"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = %s"


@dataclass(frozen=True, slots=True)
class Served:
    """The service where it is served, and its database."""

    channel: grpc.aio.Channel
    books: Books
    server: PostgresServer
    database: str

    @contextmanager
    def outage(self) -> Generator[None]:
        """The database takes no connections meanwhile, and those that there were are gone."""
        with closing(self.server.connect("postgres")) as connection:
            connection.execute(f"ALTER DATABASE {self.database} ALLOW_CONNECTIONS false".encode())
            connection.execute(END_SESSIONS, (self.database,))
            try:
                yield
            finally:
                connection.execute(f"ALTER DATABASE {self.database} ALLOW_CONNECTIONS true".encode())

    def step(
        self, saga_id: str, *, kind: str = "compensatable", target: str = "same", age: timedelta = timedelta()
    ) -> Step:
        """A step of a saga."""
        return Step(self.channel, Metadata(saga_id=saga_id, kind=kind, target=target, age=age))


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["go", "python"], name="served")
async def _served(
    request: pytest.FixtureRequest, postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[Served]:
    name, data = postgres.create_database(), tmp_path_factory.mktemp("points")
    database = postgres.url(name)
    serving = in_go(database, data) if request.param == "go" else in_python(database, data)
    async with serving as address, grpc.aio.insecure_channel(address) as channel:
        yield Served(channel, Books(database), postgres, name)
    postgres.drop_database(name)


@asynccontextmanager
async def in_go(database: str, data: Path) -> AsyncGenerator[str]:
    """The participant in Go, which keeps the rules by hand."""
    program = PointsProcess(built(), database=database, coordinator=NO_COORDINATOR, log=data / "points.log")
    await program.start()
    yield program.address
    await program.end(signal.SIGKILL)


@asynccontextmanager
async def in_python(database: str, data: Path) -> AsyncGenerator[str]:
    """The page's example, below the SDK's barrier."""
    example = shown_on_the_page(data)
    engine = create_async_engine(database.replace("postgresql://", "postgresql+psycopg://"))
    async with engine.begin() as connection:
        for tables in (example.Base.metadata, barrier.TABLES):
            await connection.run_sync(tables.create_all)
    server = ParticipantServer("points", coordinator=NO_COORDINATOR, port=0)
    server.add(example.Points(async_sessionmaker(engine)))
    async with server:
        yield f"127.0.0.1:{server.port}"
    await engine.dispose()


class Example(Protocol):
    """The module that the page shows."""

    Base: type[DeclarativeBase]
    Points: Callable[[async_sessionmaker[AsyncSession]], PointsServiceServicer]


def shown_on_the_page(folder: Path) -> Example:
    """The page's module, written where the reader would write it."""
    file = folder / "points_service.py"
    file.write_text(named_files(CHECKOUT / "docs" / "barrier.md")[file.name])
    found = spec_from_file_location("points_service", file)
    assert found is not None
    assert found.loader is not None
    module = module_from_spec(found)
    found.loader.exec_module(module)
    return cast("Example", module)


async def test_once_per_key(served: Served) -> None:
    """S2, F03: of many copies at once one does the work, all get its response; the key is good for no other request."""
    ann = served.books.open_account("ann-once")
    step = served.step("once")
    answers = await asyncio.gather(*(step.spend(customer=ann) for _ in range(8)))
    assert isinstance(answers[0], SpendResponse)
    assert answers == [answers[0]] * 8
    assert await step.find() == answers[0]
    assert await step.spend(11, customer=ann) == NOBODY_KNOWS
    assert served.books.points(ann) == BEGUN_WITH - 10


async def test_a_compensation_undoes_once(served: Served) -> None:
    """S4: it finds its work by the action's key, and repeating it changes nothing; nor does the action's late copy."""
    ann = served.books.open_account("ann-undone")
    step = served.step("undone")
    done = await step.spend(customer=ann)
    undone = await asyncio.gather(*(step.give_back() for _ in range(4)))
    assert undone == [GiveBackResponse()] * 4
    assert served.books.points(ann) == BEGUN_WITH
    assert await step.spend(customer=ann) == done  # the original response: nothing is done again
    assert served.books.points(ann) == BEGUN_WITH


async def test_a_null_compensation_leaves_a_mark(served: Served) -> None:
    """S4, F04, V11: with no action before it, it succeeds, and the action that comes late is refused for ever."""
    ann = served.books.open_account("ann-null")
    step = served.step("null")
    assert [await step.give_back(), await step.give_back()] == [GiveBackResponse()] * 2
    assert [await step.spend(customer=ann), await step.spend(customer=ann)] == [GONE] * 2
    assert await step.find() == NEVER
    assert served.books.points(ann) == BEGUN_WITH


async def test_elsewhere_nothing_is_null(served: Served) -> None:
    """V17: with target `other` its body runs (here it refuses, which is never final), and no mark is left, since the
    action was somebody else's.
    """
    ann = served.books.open_account("ann-other")
    step = served.step("other", target="other")
    refused = Refused(code=grpc.StatusCode.FAILED_PRECONDITION)
    assert [await step.give_back(), await step.give_back()] == [refused] * 2
    assert isinstance(await step.spend(customer=ann), SpendResponse)


async def test_an_outage_begins_nothing(served: Served) -> None:
    """L1: while its database is away nothing is begun, and the answer proves it; so it spends no budget."""
    ann = served.books.open_account("ann-outage")
    step = served.step("outage")
    not_begun = Refused(code=grpc.StatusCode.UNAVAILABLE, not_begun=True)
    with served.outage():
        assert [await step.spend(customer=ann), await step.find(), await step.give_back()] == [not_begun] * 3
    while (end := await step.spend(customer=ann)) == not_begun:  # on one more of the connections that are gone
        await pause()
    assert isinstance(end, SpendResponse)


async def test_a_soft_abort_is_said_again(served: Served) -> None:
    """V7: what was done although the saga is to be rolled back is answered so by every copy and by the lookup."""
    ann = served.books.open_account("ann-watched", watched=True)
    step = served.step("watched")
    assert await step.abort_reasons(customer=ann) == [b"this customer is watched"] * 3
    assert served.books.points(ann) == BEGUN_WITH - 10
    assert await step.give_back() == GiveBackResponse()
    assert served.books.points(ann) == BEGUN_WITH


async def test_a_compensation_waits_for_its_action(served: Served) -> None:
    """V8: an action that is running when the compensation comes is undone, not overtaken."""
    ann = served.books.open_account("ann-overtaken")
    step = served.step("overtaken")
    with closing(served.books.connect()) as connection:
        connection.execute("SELECT * FROM account WHERE customer_id = %s FOR UPDATE", (ann,))
        action = asyncio.create_task(step.spend(customer=ann))
        await eventually(served.books.waiting, what="the action waits")
        compensation = asyncio.create_task(step.give_back())
        connection.rollback()
    assert isinstance(await action, SpendResponse)
    assert await compensation == GiveBackResponse()
    assert served.books.points(ann) == BEGUN_WITH


@pytest.mark.parametrize("kind", ["compensatable", "pivot"])
async def test_refusals_are_repeated_for_ever(served: Served, kind: str) -> None:
    """F13, V11: a refusal is written down before it is promised; what happens later changes it no more."""
    step = served.step(f"refused-{kind}", kind=kind)
    customer = f"late-{kind}"
    refused = Refused(code=grpc.StatusCode.NOT_FOUND, sealed=True)
    assert await step.spend(customer=customer) == refused
    served.books.open_account(customer)
    assert await step.spend(customer=customer) == refused
    assert await step.find() == NEVER
    assert await step.give_back() == GiveBackResponse()
    assert served.books.points(customer) == BEGUN_WITH


async def test_a_retriable_step_may_always_come_again(served: Served) -> None:
    """V5: neither its refusal nor its lookup's seals anything."""
    step = served.step("retriable", kind="retriable")
    assert [await step.find(), await step.spend(customer="later"), await step.find()] == [NOT_YET] * 3
    served.books.open_account("later")
    assert isinstance(await step.spend(customer="later"), SpendResponse)
    assert isinstance(await step.find(), SpendResponse)


async def test_a_lookup_proves_that_it_never_will(served: Served) -> None:
    """V2: what was not done when the lookup came is not done afterwards."""
    ann = served.books.open_account("ann-sought")
    step = served.step("sought")
    assert await step.find() == NEVER
    assert await step.spend(customer=ann) == GONE
    assert served.books.points(ann) == BEGUN_WITH


async def test_what_is_forgotten_is_not_begun_anew(served: Served) -> None:
    """V12: of a step that is older than what is remembered nobody knows; what is remembered still stands."""
    ann = served.books.open_account("ann-forgotten")
    old = timedelta(days=61)
    kept = served.step("kept", age=old)
    done = await kept.spend(customer=ann)
    with closing(served.books.connect()) as connection, connection:
        connection.execute(
            "INSERT INTO amends_barrier_horizon VALUES (1, now() - interval '60 days') "
            "ON CONFLICT (id) DO UPDATE SET forgotten_before = excluded.forgotten_before"
        )
    gone = served.step("gone", age=old)
    assert [await gone.spend(customer=ann), await gone.give_back(), await gone.find()] == [NOBODY_KNOWS] * 3
    other = served.step("gone", age=old, target="other")
    assert await other.give_back() == NOBODY_KNOWS
    assert await kept.spend(customer=ann) == done
    assert isinstance(await served.step("young").spend(customer=ann), SpendResponse)
