"""A participant that is not written in Python takes part like any other, and keeps the rules of the barrier by hand.

It is the program in `participants/go`, built by Go and run as a process on a real PostgreSQL. Where there is no Go, or
its modules can't be had, these tests are skipped and say so.
"""

from __future__ import annotations

import asyncio
import signal
from contextlib import closing
from datetime import timedelta
from typing import TYPE_CHECKING

import grpc
import psycopg
import pytest
import pytest_asyncio
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from amends import Committed, Compensated, Retry, Saga, SagaClient, method
from amends.v1 import annotations_pb2
from amends.v1.registry_service_pb2 import ListParticipantsRequest
from amends.v1.registry_service_pb2_grpc import RegistryServiceStub
from amends_coordinator.definitions.descriptors import comparable_file
from points.v1 import points_pb2
from points.v1.points_pb2 import GiveBackResponse, SpendRequest, SpendResponse
from points.v1.points_pb2_grpc import PointsServiceServicer
from shop.demo.books import query
from tests.participants.go_points import CALL_BOUND_S, Metadata, PointsProcess, Refused, Step, built
from tests.scenarios.processes import Process, coordinator
from tests.waiting import eventually, pause

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator
    from pathlib import Path

    from tests.postgres import PostgresServer

pytestmark = [pytest.mark.crash, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(600)]

BEGUN_WITH = 100
"""How many points a customer of a test has."""

GONE = Refused(code=grpc.StatusCode.FAILED_PRECONDITION, sealed=True)
NEVER = Refused(code=grpc.StatusCode.NOT_FOUND, sealed=True)
NOT_YET = Refused(code=grpc.StatusCode.NOT_FOUND, sealed=False)
NOBODY_KNOWS = Refused(code=grpc.StatusCode.ABORTED, sealed=False)

Spend = method(PointsServiceServicer.Spend, SpendRequest, SpendResponse)

buy = Saga("buy", input=SpendRequest, output=SpendResponse)
paid = buy.step("paid", Spend(customer_id=buy.input.customer_id, point_count=buy.input.point_count))
buy.output(SpendResponse)(spend_id=paid.response.spend_id, left_count=paid.response.left_count)

splurge = Saga("splurge", input=SpendRequest)
splurge.step("paid", Spend(customer_id=splurge.input.customer_id, point_count=splurge.input.point_count))
splurge.step("paid_more", Spend(customer_id=splurge.input.customer_id, point_count=1_000))

hurry = Saga("hurry", input=SpendRequest)
hurry.step(
    "paid",
    Spend(customer_id=hurry.input.customer_id, point_count=hurry.input.point_count),
    timeout=timedelta(milliseconds=300),
    retry=Retry(total_timeout=timedelta(milliseconds=300)),
)


class Books:
    """The participant's database, and whoever else has to do with it."""

    def __init__(self, url: str) -> None:
        self._url = url

    def connect(self) -> psycopg.Connection[tuple[object, ...]]:
        """A connection of an outsider, who commits himself."""
        return psycopg.connect(self._url)

    def open_account(self, customer: str) -> str:
        """A customer with points."""
        with closing(self.connect()) as connection, connection:
            connection.execute("INSERT INTO account VALUES (%s, %s)", (customer, BEGUN_WITH))
        return customer

    def points(self, customer: str) -> object:
        """How many points a customer has."""
        with closing(self.connect()) as connection:
            row = connection.execute("SELECT point_count FROM account WHERE customer_id = %s", (customer,)).fetchone()
        assert row is not None
        return row[0]

    def waiting(self) -> bool:
        """Whether a call waits for somebody's lock."""
        with closing(self.connect()) as connection:
            asked = (
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
            )
            row = connection.execute(asked).fetchone()
        return row != (0,)


@pytest.fixture(scope="module", name="binary")
def _binary() -> Path:
    return built()


@pytest.fixture(scope="module", name="database")
def _database(postgres: PostgresServer) -> Generator[str]:
    name = postgres.create_database()
    yield postgres.url(name)
    postgres.drop_database(name)


@pytest.fixture(scope="module", name="data")
def _data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("go")


@pytest_asyncio.fixture(scope="module", loop_scope="module", name="place")
async def _place(data: Path) -> AsyncGenerator[Process]:
    """A coordinator."""
    place = coordinator(data)
    await place.start()
    yield place
    await place.stop()
    assert "Traceback" not in place.log_text(), place.log_text()


@pytest_asyncio.fixture(scope="module", loop_scope="module", name="program")
async def _program(binary: Path, database: str, place: Process, data: Path) -> AsyncGenerator[PointsProcess]:
    """The participant, announced."""
    program = PointsProcess(binary, database=database, coordinator=place.address, log=data / "points.log")
    await program.start()
    await announced(place, count=1)
    yield program
    await program.end(signal.SIGKILL)


@pytest_asyncio.fixture(loop_scope="module", name="channel")
async def _channel(program: PointsProcess) -> AsyncGenerator[grpc.aio.Channel]:
    async with grpc.aio.insecure_channel(program.address) as channel:
        yield channel


@pytest.fixture(name="books")
def _books(database: str, program: PointsProcess) -> Books:
    assert program.address  # it has made the tables
    return Books(database)


async def announced(place: Process, *, count: int) -> None:
    """Wait until so many instances are announced."""
    async with grpc.aio.insecure_channel(place.address) as channel:
        registry = RegistryServiceStub(channel)
        while True:
            listed = await registry.ListParticipants(ListParticipantsRequest(), timeout=CALL_BOUND_S)
            if sum(len(found.instances) for found in listed.participants) == count:
                return
            await pause()


async def test_it_announces_what_the_protos_say(place: Process, data: Path, program: PointsProcess) -> None:
    """The generated code in Go is that of the protos: what it announces is what the stubs in Python know."""
    assert place.running
    assert program.address
    ((announced_bytes,),) = query(data / "ledger.db", "SELECT descriptors FROM participant WHERE name = 'points'")
    assert isinstance(announced_bytes, bytes)
    files = {file.name: file for file in FileDescriptorSet.FromString(announced_bytes).file}
    for descriptor in (points_pb2.DESCRIPTOR, annotations_pb2.DESCRIPTOR):
        expected = FileDescriptorSet()
        expected.file.add().MergeFromString(descriptor.serialized_pb)
        assert comparable_file(files[descriptor.name]) == comparable_file(expected.file[0])


async def test_a_saga_that_commits(place: Process, books: Books) -> None:
    """S3: its step is called, and what it did stands once."""
    ann = books.open_account("ann-commits")
    async with SagaClient(place.address) as client:
        end = await client.run(buy, SpendRequest(customer_id=ann, point_count=30))
    assert isinstance(end, Committed)
    assert end.output.left_count == books.points(ann) == BEGUN_WITH - 30


async def test_a_saga_that_is_rolled_back(place: Process, books: Books) -> None:
    """S4: a refusal comes with its reason, and what was taken before is given back."""
    ann = books.open_account("ann-splurges")
    async with SagaClient(place.address) as client:
        end = await client.run(splurge, SpendRequest(customer_id=ann, point_count=30))
    assert isinstance(end, Compensated)
    assert (end.failure.reason, end.unproven) == ("TOO_FEW_POINTS", False)
    assert books.points(ann) == BEGUN_WITH


async def test_a_saga_that_never_hears_of_its_step(place: Process, books: Books, channel: grpc.aio.Channel) -> None:
    """V2, V3: the step waits for somebody's lock until nobody waits for it. Its lookup proves that it never will
    happen, and a copy of the call that comes after the saga has ended is refused.
    """
    ann = books.open_account("ann-waits")
    with closing(books.connect()) as connection:
        connection.execute("SELECT * FROM account WHERE customer_id = %s FOR UPDATE", (ann,))
        async with SagaClient(place.address) as client:
            end = await client.run(hurry, SpendRequest(customer_id=ann, point_count=30), saga_id="hurry-1")
        connection.rollback()
    assert isinstance(end, Compensated)
    assert not end.unproven
    late = Step(channel, Metadata(saga_id="hurry-1", ledger="default", step="paid"))
    assert await late.spend(30, customer=ann) == GONE
    assert books.points(ann) == BEGUN_WITH


async def test_once_per_key(books: Books, channel: grpc.aio.Channel) -> None:
    """S2, F03: of many copies at once one does the work, all get its response; the key is good for no other request."""
    ann = books.open_account("ann-once")
    step = Step(channel, Metadata(saga_id="once"))
    answers = await asyncio.gather(*(step.spend(customer=ann) for _ in range(8)))
    assert isinstance(answers[0], SpendResponse)
    assert answers == [answers[0]] * 8
    assert await step.find() == answers[0]
    assert await step.spend(11, customer=ann) == NOBODY_KNOWS
    assert books.points(ann) == BEGUN_WITH - 10


async def test_a_compensation_undoes_once(books: Books, channel: grpc.aio.Channel) -> None:
    """S4: it finds its work by the action's key, and repeating it changes nothing; nor does the action's late copy."""
    ann = books.open_account("ann-undone")
    step = Step(channel, Metadata(saga_id="undone"))
    done = await step.spend(customer=ann)
    undone = await asyncio.gather(*(step.give_back() for _ in range(4)))
    assert undone == [GiveBackResponse()] * 4
    assert books.points(ann) == BEGUN_WITH
    assert await step.spend(customer=ann) == done  # the original response: nothing is done again
    assert books.points(ann) == BEGUN_WITH


async def test_a_null_compensation_leaves_a_mark(books: Books, channel: grpc.aio.Channel) -> None:
    """F04, V11: with no action before it, it succeeds, and the action that comes late is refused for ever."""
    ann = books.open_account("ann-null")
    step = Step(channel, Metadata(saga_id="null"))
    assert [await step.give_back(), await step.give_back()] == [GiveBackResponse()] * 2
    assert [await step.spend(customer=ann), await step.spend(customer=ann)] == [GONE] * 2
    assert await step.find() == NEVER
    assert books.points(ann) == BEGUN_WITH


async def test_elsewhere_nothing_is_null(books: Books, channel: grpc.aio.Channel) -> None:
    """V17: with target `other` its work is done, and no mark is left: the action was somebody else's."""
    ann = books.open_account("ann-other")
    step = Step(channel, Metadata(saga_id="other", target="other"))
    assert await step.give_back() == GiveBackResponse()
    assert isinstance(await step.spend(customer=ann), SpendResponse)


async def test_a_compensation_waits_for_its_action(books: Books, channel: grpc.aio.Channel) -> None:
    """V8: an action that is running when the compensation comes is undone, not overtaken."""
    ann = books.open_account("ann-overtaken")
    step = Step(channel, Metadata(saga_id="overtaken"))
    with closing(books.connect()) as connection:
        connection.execute("SELECT * FROM account WHERE customer_id = %s FOR UPDATE", (ann,))
        action = asyncio.create_task(step.spend(customer=ann))
        await eventually(books.waiting, what="the action waits")
        compensation = asyncio.create_task(step.give_back())
        connection.rollback()
    assert isinstance(await action, SpendResponse)
    assert await compensation == GiveBackResponse()
    assert books.points(ann) == BEGUN_WITH


@pytest.mark.parametrize("kind", ["compensatable", "pivot"])
async def test_refusals_are_repeated_for_ever(books: Books, channel: grpc.aio.Channel, kind: str) -> None:
    """F13, V11: a refusal is written down before it is promised; what happens later changes it no more."""
    step = Step(channel, Metadata(saga_id=f"refused-{kind}", kind=kind))
    customer = f"late-{kind}"
    refused = Refused(code=grpc.StatusCode.NOT_FOUND, sealed=True)
    assert await step.spend(customer=customer) == refused
    books.open_account(customer)
    assert await step.spend(customer=customer) == refused
    assert await step.find() == NEVER
    assert await step.give_back() == GiveBackResponse()
    assert books.points(customer) == BEGUN_WITH


async def test_a_retriable_step_may_always_come_again(books: Books, channel: grpc.aio.Channel) -> None:
    """V5: neither its refusal nor its lookup's seals anything."""
    step = Step(channel, Metadata(saga_id="retriable", kind="retriable"))
    assert [await step.find(), await step.spend(customer="later"), await step.find()] == [NOT_YET] * 3
    books.open_account("later")
    assert isinstance(await step.spend(customer="later"), SpendResponse)
    assert isinstance(await step.find(), SpendResponse)


async def test_a_lookup_proves_that_it_never_will(books: Books, channel: grpc.aio.Channel) -> None:
    """V2: what was not done when the lookup came is not done afterwards."""
    ann = books.open_account("ann-sought")
    step = Step(channel, Metadata(saga_id="sought"))
    assert await step.find() == NEVER
    assert await step.spend(customer=ann) == GONE
    assert books.points(ann) == BEGUN_WITH


async def test_what_is_forgotten_is_not_begun_anew(books: Books, channel: grpc.aio.Channel) -> None:
    """V12: of a step that is older than what is remembered nobody knows; what is remembered still stands."""
    ann = books.open_account("ann-forgotten")
    old = timedelta(days=61)
    kept = Step(channel, Metadata(saga_id="kept", age=old))
    done = await kept.spend(customer=ann)
    with closing(books.connect()) as connection, connection:
        connection.execute("INSERT INTO amends_barrier_horizon VALUES (1, now() - interval '60 days')")
    gone = Step(channel, Metadata(saga_id="gone", age=old))
    assert [await gone.spend(customer=ann), await gone.give_back(), await gone.find()] == [NOBODY_KNOWS] * 3
    other = Step(channel, Metadata(saga_id="gone", age=old, target="other"))
    assert await other.give_back() == NOBODY_KNOWS
    assert await kept.spend(customer=ann) == done
    assert isinstance(await Step(channel, Metadata(saga_id="young")).spend(customer=ann), SpendResponse)


async def test_a_call_that_is_no_step_is_a_fault_of_the_wiring(channel: grpc.aio.Channel) -> None:
    """Without the coordinator's metadata nothing runs, and the answer says so."""
    step = Step(channel, Metadata(saga_id=""))
    assert await step.unmarked() == Refused(code=grpc.StatusCode.UNIMPLEMENTED, sealed=False)


async def test_killed_before_its_commit_it_has_done_nothing(
    place: Process, program: PointsProcess, books: Books
) -> None:
    """F01: killed in the middle of a call; the next start knows nothing of it, and repeating the call does it once.
    Told to stop, it takes itself out and ends well.
    """
    ann = books.open_account("ann-killed")
    metadata = Metadata(saga_id="killed")
    async with grpc.aio.insecure_channel(program.address) as channel:
        with closing(books.connect()) as connection:
            connection.execute("SELECT * FROM account WHERE customer_id = %s FOR UPDATE", (ann,))
            call = asyncio.create_task(Step(channel, metadata).spend(customer=ann))
            await eventually(books.waiting, what="the call is in the middle of its work")
            await program.end(signal.SIGKILL)
            assert await call == Refused(code=grpc.StatusCode.UNAVAILABLE, sealed=False)
            connection.rollback()
    assert books.points(ann) == BEGUN_WITH
    await program.start()
    async with grpc.aio.insecure_channel(program.address) as channel:
        assert isinstance(await Step(channel, metadata).spend(customer=ann), SpendResponse)
    assert books.points(ann) == BEGUN_WITH - 10
    await announced(place, count=2)  # the lease of the killed one has not ended
    assert await program.end() == 0
    await announced(place, count=1)
