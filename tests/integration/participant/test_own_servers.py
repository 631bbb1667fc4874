"""Servers that a team runs itself: the pieces of `ParticipantServer`, for asyncio and for threads."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import AsyncGenerator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

import grpc
import pytest
from google.protobuf import descriptor_pb2
from sqlalchemy import StaticPool, create_engine
from sqlalchemy.orm import sessionmaker

from amends import (
    Announcer,
    DescriptorConflictError,
    InvalidParticipantError,
    NotStartedError,
    StepInterceptor,
    SyncAnnouncer,
    SyncStepInterceptor,
    barrier,
    current_step,
)
from shop.inventory.v1.inventory_pb2 import ReserveRequest, ReserveResponse
from shop.inventory.v1.inventory_pb2_grpc import InventoryServiceServicer, add_InventoryServiceServicer_to_server
from tests.integration.participant.calls import (
    NO_COORDINATOR,
    SERVICE,
    Inventory,
    PlainBehaviour,
    PlainInventory,
    ReserveContext,
    as_step,
)
from tests.integration.participant.registry import Registry, serving_registry
from tests.integration.participant.test_announcing import CONFLICT
from tests.integration.participant.test_answers import Answer, answer_of, reserve
from tests.integration.participant.test_plain_handlers import (
    ENDS,
    GRPCS_WAYS,
    LONG_S,
    OK,
    TRACEPARENT,
    End,
    NotingGuard,
    answer_of_plain,
    fail,
    given_up,
    refuse,
)

ABORTED = grpc.StatusCode.ABORTED


@asynccontextmanager
async def own_aio_server(
    servicer: InventoryServiceServicer, interceptor: StepInterceptor | None = None
) -> AsyncGenerator[grpc.aio.Channel]:
    """A channel to an asyncio server as gRPC's own examples make one, with the interceptor."""
    server = grpc.aio.server(interceptors=[interceptor or StepInterceptor("inventory")])
    add_InventoryServiceServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield channel
    finally:
        await server.stop(None)


@asynccontextmanager
async def own_sync_server(
    behaviour: PlainBehaviour, interceptor: SyncStepInterceptor | None = None
) -> AsyncGenerator[grpc.aio.Channel]:
    """A channel to a synchronous server as gRPC's own examples make one, with the interceptor."""
    with ThreadPoolExecutor(8) as threads:
        server = grpc.server(threads, interceptors=[interceptor or SyncStepInterceptor("inventory")])
        # The stubs that are generated here know asynchronous servers only.
        add_InventoryServiceServicer_to_server(PlainInventory(behaviour), server)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
                yield channel
        finally:
            await asyncio.to_thread(server.stop(None).wait)


@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.__name__)
async def test_own_servers_answer_as_participant_server_does(end: End) -> None:
    """S4: what proves something, and what nothing, depends neither on the server nor on how a handler is written."""

    async def asynchronous(request: ReserveRequest, context: ReserveContext) -> ReserveResponse:
        context.set_trailing_metadata((("shop-shelf", "7"),))
        return end()

    def plain(request: ReserveRequest, context: grpc.ServicerContext) -> ReserveResponse:
        context.set_trailing_metadata((("shop-shelf", "7"),))
        return end()

    metadata = as_step(traceparent=TRACEPARENT)
    async with own_aio_server(Inventory(asynchronous)) as channel:
        on_loop = await reserve(channel, metadata)
    async with own_aio_server(PlainInventory(plain)) as channel:
        in_thread = await reserve(channel, metadata)
    async with own_sync_server(plain) as channel:
        synchronous = await reserve(channel, metadata)
    assert [on_loop, in_thread, synchronous] == [await answer_of(asynchronous, metadata)] * 3
    assert synchronous == await answer_of_plain(plain)


async def test_grpcs_own_ways_pass_through_a_synchronous_server() -> None:
    """S4: a handler may abort or set a code as ever, also if it swallows its own abort."""
    for behaviour in GRPCS_WAYS:
        async with own_sync_server(behaviour) as channel:
            assert await reserve(channel, as_step()) == Answer(ABORTED, "once more", {})


async def test_a_call_without_a_deadline_is_a_step_like_others() -> None:
    """S2: somebody calls by hand, with a coordinator's metadata. What waits for time to be over waits for no such time:
    a copy for the first call's end, a barrier for its row.
    """
    begun, go_on = threading.Event(), threading.Event()
    engine = create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})
    barrier.TABLES.create_all(engine)

    def behaviour(request: ReserveRequest, context: grpc.ServicerContext) -> ReserveResponse:
        begun.set()
        assert go_on.wait(10)
        with barrier.transaction(sessionmaker(engine)):
            return ReserveResponse(reservation_id=f"{current_step().time_remaining()}")

    for serving in (own_sync_server(behaviour), own_aio_server(PlainInventory(behaviour))):
        begun.clear()
        go_on.clear()
        async with serving as channel:
            saga_id = str(uuid.uuid4())
            first = asyncio.create_task(reserve(channel, as_step(saga_id), timeout_s=None))
            await asyncio.to_thread(begun.wait, 10)
            copy = asyncio.create_task(reserve(channel, as_step(saga_id), timeout_s=None))
            go_on.set()
            answers = list(await asyncio.gather(first, copy))
        assert answers == [Answer(OK, "", {}, ReserveResponse(reservation_id="None").SerializeToString())] * 2
    engine.dispose()


EndThrough = Callable[[grpc.ServicerContext], None]


def ended(end: EndThrough, kind: str) -> tuple[grpc.StatusCode, str | None]:
    """How a method of a synchronous server that no proto describes ends, if its handler ends like this."""

    def answer(request: bytes, context: grpc.ServicerContext) -> bytes:
        end(context)
        return request

    def stream(request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        yield request
        end(context)

    methods: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
        "Once": grpc.unary_unary_rpc_method_handler(answer),
        "Often": grpc.unary_stream_rpc_method_handler(stream),
    }
    with ThreadPoolExecutor(2) as threads:
        server = grpc.server(threads, interceptors=[SyncStepInterceptor("talk")])
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("talk.Talk", methods),))
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
                call: grpc.UnaryStreamMultiCallable[bytes, bytes] = channel.unary_stream(f"/talk.Talk/{kind}")
                with pytest.raises(grpc.RpcError) as caught:
                    list(call(b"", timeout=5))
            return caught.value.code(), caught.value.details()
        finally:
            server.stop(None).wait()


@pytest.mark.parametrize("kind", ["Once", "Often"])
def test_what_is_no_step_of_a_synchronous_server_refuses_and_fails_like_everything_else(kind: str) -> None:
    """S4: streams, and methods that no proto describes: what they raise is answered for, and a text stays here."""
    assert ended(lambda _: refuse(), kind) == (grpc.StatusCode.OUT_OF_RANGE, "sold out")
    assert ended(lambda context: context.abort(ABORTED, "once more"), kind) == (ABORTED, "once more")
    code, text = ended(lambda _: fail(), kind)
    assert (code, "secret" in (text or "")) == (grpc.StatusCode.UNKNOWN, False)


async def test_a_synchronous_server_gives_each_key_one_handler_at_a_time() -> None:
    """S2, F06: a copy waits for the call that runs; another request under its key never runs; a full server says so."""
    began, goes_on, ran = threading.Event(), threading.Event(), list[str]()

    def behaviour(request: ReserveRequest, context: grpc.ServicerContext) -> ReserveResponse:
        ran.append(f"{current_step().attempt} begins")
        began.set()
        assert goes_on.wait(LONG_S)
        ran.append(f"{current_step().attempt} ends")
        return ReserveResponse()

    interceptor = SyncStepInterceptor("inventory", capacity=2)
    async with own_sync_server(behaviour, interceptor) as channel:
        first = asyncio.create_task(reserve(channel, as_step()))
        assert await asyncio.to_thread(began.wait, LONG_S)
        other = await reserve(channel, as_step(amends_attempt="2"), sku="another")
        copy = await reserve(channel, as_step(amends_attempt="3"), timeout_s=0.2)
        assert not await asyncio.to_thread(interceptor.wait_idle, 0)
        goes_on.set()
        assert ((await first).code, other.code) == (OK, ABORTED)
        assert await asyncio.to_thread(interceptor.wait_idle, LONG_S)
    assert copy.code in {ABORTED, grpc.StatusCode.DEADLINE_EXCEEDED}
    assert ran[:2] == ["1 begins", "1 ends"]  # whoever gave up in that very moment may still run after it


async def test_a_guard_decides_in_the_thread_of_a_synchronous_server() -> None:
    """S4: commit and rollback come where the handler ran, and their verdict is sent."""
    guard, threads = NotingGuard(None), list[int]()

    def behaviour(request: ReserveRequest, context: grpc.ServicerContext) -> ReserveResponse:
        current_step().state.guard = guard
        threads.append(threading.get_ident())
        if request.sku == "no":
            refuse()
        return ReserveResponse()

    async with own_sync_server(behaviour) as channel:
        answers = [await reserve(channel, as_step(sku), sku=sku) for sku in ("yes", "no")]
    assert ReserveResponse.FromString(answers[0].response).reservation_id == "stored"
    assert answers[0].trailers == {"amends-abort-bin": b"why"}
    assert guard.asked == [("returned", threads[0]), ("Rejected", threads[1])]


async def test_an_own_server_can_wait_for_its_threads() -> None:
    """S5: what gRPC's stop() knows nothing of is waited for, within a bound."""
    began, goes_on = threading.Event(), threading.Event()

    def behaviour(request: ReserveRequest, context: grpc.ServicerContext) -> ReserveResponse:
        began.set()
        assert goes_on.wait(LONG_S)
        return ReserveResponse()

    interceptor = StepInterceptor("inventory")
    async with own_aio_server(PlainInventory(behaviour), interceptor) as channel:
        call = asyncio.create_task(reserve(channel, as_step()))
        assert await asyncio.to_thread(began.wait, LONG_S)
        await given_up(call)
    assert not await interceptor.wait_idle(0)
    goes_on.set()
    assert await interceptor.wait_idle(LONG_S)


async def test_an_announcer_announces_what_another_server_serves() -> None:
    """L1: from start to stop the coordinator knows the instance, by its servicers or by names."""
    registry = Registry()
    async with serving_registry(registry) as port:
        for number, what in enumerate(({"servicers": [Inventory()]}, {"services": [SERVICE]})):
            announcer = Announcer(
                "inventory",
                coordinator=f"127.0.0.1:{port}",
                address="127.0.0.1:7101",
                capacity=number,
                **what,  # type: ignore[arg-type] # one kind of argument each
            )
            async with announcer, asyncio.timeout(LONG_S):
                await announcer.announced()
                told = await registry.next_registered()
            assert (told.name, list(told.services)) == ("inventory", [SERVICE])
            assert (told.instance.address, told.instance.capacity) == ("127.0.0.1:7101", number)
            assert told.descriptors.file[-1].name == "shop/inventory/v1/inventory.proto"
            assert (await registry.next_deregistered()).instance_id == told.instance.instance_id
            with pytest.raises(NotStartedError):
                await announcer.announced()


async def test_an_announcer_of_a_program_without_a_loop() -> None:
    """L1: the same from a thread of its own, and a conflict is told to whoever waits."""
    registry = Registry()

    def program(coordinator: str) -> str:
        announcer = SyncAnnouncer(
            Announcer("inventory", coordinator=coordinator, address="127.0.0.1:7101", services=[SERVICE])
        )
        with announcer:
            announcer.announced(LONG_S)
            instance_id = announcer.instance_id
        announcer.stop()
        return instance_id

    async with serving_registry(registry) as port:
        instance_id = await asyncio.to_thread(program, f"127.0.0.1:{port}")
        assert (await registry.next_deregistered()).instance_id == instance_id
        registry.refusal = CONFLICT
        with pytest.raises(DescriptorConflictError, match="rename the package"):
            await asyncio.to_thread(program, f"127.0.0.1:{port}")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"name": "Payments"}, "'Payments' is no name of a participant"),
        ({"coordinator": "localhost"}, "write host:port"),
        ({"address": "0.0.0.0:7101"}, "no address that a coordinator can call"),
        ({"address": "payments"}, "no address that a coordinator can call"),
        ({"capacity": -1}, "capacity=-1"),
        ({"services": []}, "serves nothing"),
        ({"services": ["shop.v1.Nothing"]}, "no imported _pb2 module describes the service shop.v1.Nothing"),
    ],
)
def test_arguments_that_cannot_work_are_refused(arguments: dict[str, object], sentence: str) -> None:
    """L2: what could never be reached is refused before it is announced."""
    usual: dict[str, object] = {
        "name": "inventory",
        "coordinator": NO_COORDINATOR,
        "address": "127.0.0.1:7101",
        "services": [SERVICE],
    }
    with pytest.raises(InvalidParticipantError, match=sentence):
        Announcer(**{**usual, **arguments})  # type: ignore[arg-type] # pyright: ignore[reportArgumentType] # wrong on purpose


def test_descriptors_may_come_along() -> None:
    """L1: a server without generated code announces the files that describe it."""
    files = descriptor_pb2.FileDescriptorSet(file=[descriptor_pb2.FileDescriptorProto(name="far.proto")])
    with SyncAnnouncer(
        Announcer(
            "far",
            coordinator=NO_COORDINATOR,
            address="127.0.0.1:7101",
            services=["far.v1.Far"],
            descriptors=files,
        )
    ) as announcer:
        assert announcer.instance_id
