"""A participant that is not written in Python takes part in sagas like any other.

It is the program in `participants/go`, built by Go and run as a process on a real PostgreSQL. Where there is no Go, or
its modules can't be had, these tests are skipped and say so.
"""

from __future__ import annotations

import asyncio
import signal
from contextlib import closing
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import grpc
import pytest
import pytest_asyncio
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from amends import Committed, Compensated, Retry, Saga, SagaClient, method
from amends.v1 import annotations_pb2
from amends.v1.registry_service_pb2 import ListParticipantsRequest
from amends.v1.registry_service_pb2_grpc import RegistryServiceStub
from amends_coordinator.definitions.descriptors import comparable_file
from points.v1 import points_pb2
from points.v1.points_pb2 import SpendRequest, SpendResponse
from points.v1.points_pb2_grpc import PointsServiceServicer
from shop.demo.books import query
from tests.participants.go_points import PointsProcess, built
from tests.participants.points_calls import BEGUN_WITH, CALL_BOUND_S, Books, Metadata, Refused, Step
from tests.scenarios.processes import Process, coordinator
from tests.waiting import eventually, pause

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator
    from pathlib import Path

    from tests.postgres import PostgresServer

ANNOUNCED_BOUND_S = 30.0

pytestmark = [pytest.mark.crash, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(600)]

GONE = Refused(code=grpc.StatusCode.FAILED_PRECONDITION, sealed=True)

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
    place = coordinator(data, AMENDS_PARTICIPANT_LEASE_S="300")
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


async def last_announced(place: Process) -> datetime:
    """When the participant was announced or renewed last."""
    async with grpc.aio.insecure_channel(place.address) as channel:
        listed = await RegistryServiceStub(channel).ListParticipants(ListParticipantsRequest(), timeout=CALL_BOUND_S)
    return next(found.update_time.ToDatetime() for found in listed.participants if found.name == "points")


async def announced(place: Process, *, count: int) -> None:
    """Wait until so many instances are announced."""
    async with asyncio.timeout(ANNOUNCED_BOUND_S), grpc.aio.insecure_channel(place.address) as channel:
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
    """S4, V2, V3: the step waits for somebody's lock until nobody waits for it. Its lookup proves that it never will
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


async def test_a_call_that_is_no_step_is_a_fault_of_the_wiring(channel: grpc.aio.Channel) -> None:
    """Without the coordinator's metadata nothing runs, and the answer says so."""
    step = Step(channel, Metadata(saga_id="none"))
    assert await step.unmarked() == Refused(code=grpc.StatusCode.UNIMPLEMENTED)


async def test_it_announces_itself_again_to_a_coordinator_that_was_away(place: Process, program: PointsProcess) -> None:
    """L1: at once, long before its lease is over."""
    assert program.address
    before = await last_announced(place)
    await place.kill()
    await place.start()
    async with asyncio.timeout(ANNOUNCED_BOUND_S):
        while await last_announced(place) == before:
            await pause()


async def test_it_forgets_what_is_old(program: PointsProcess, books: Books) -> None:
    """V12: keys are purged at the start, and from then on it says of such steps that it can't know."""
    ann = books.open_account("ann-old")
    async with grpc.aio.insecure_channel(program.address) as channel:
        for saga_id in ("old", "new"):
            assert isinstance(await Step(channel, Metadata(saga_id=saga_id)).spend(customer=ann), SpendResponse)
    books.age("old", old := timedelta(days=61))
    await program.end()
    await program.start()
    await eventually(lambda: books.keys_of("old") == 0, what="the old key is gone")
    assert books.keys_of("new") == 1
    async with grpc.aio.insecure_channel(program.address) as channel:
        late = Step(channel, Metadata(saga_id="old", age=old))
        assert await late.spend(customer=ann) == Refused(code=grpc.StatusCode.ABORTED)


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
            assert await call == Refused(code=grpc.StatusCode.UNAVAILABLE)
            connection.rollback()
    assert books.points(ann) == BEGUN_WITH
    await program.start()
    async with grpc.aio.insecure_channel(program.address) as channel:
        assert isinstance(await Step(channel, metadata).spend(customer=ann), SpendResponse)
    assert books.points(ann) == BEGUN_WITH - 10
    await announced(place, count=2)  # the lease of the killed one has not ended
    assert await program.end() == 0
    await announced(place, count=1)
