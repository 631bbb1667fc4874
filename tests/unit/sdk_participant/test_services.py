"""What is read from a servicer, and the sentences that mend one which can't be served."""

from __future__ import annotations

from collections.abc import Awaitable

import grpc
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool
from grpc_health.v1.health_pb2_grpc import HealthServicer  # type: ignore[import-untyped] # ships no types

from amends.participant import InvalidParticipantError, ParticipantServer, StepInterceptor, SyncStepInterceptor
from amends.participant.services import descriptors_of, read_servicer
from amends.v1 import annotations_pb2
from shop.inventory.v1.inventory_pb2 import ReleaseRequest, ReleaseResponse, ReserveRequest, ReserveResponse
from shop.inventory.v1.inventory_pb2_grpc import InventoryServiceServicer
from shop.orders.v1.orders_pb2_grpc import OrdersServiceServicer

SERVICE = "shop.inventory.v1.InventoryService"


class Inventory(InventoryServiceServicer):
    """Serves both methods of its service."""

    async def Reserve(
        self, request: ReserveRequest, context: grpc.aio.ServicerContext[ReserveRequest, Awaitable[ReserveResponse]]
    ) -> ReserveResponse:
        return ReserveResponse()

    async def Release(
        self, request: ReleaseRequest, context: grpc.aio.ServicerContext[ReleaseRequest, Awaitable[ReleaseResponse]]
    ) -> ReleaseResponse:
        return ReleaseResponse()


class PickyInventory(Inventory):
    """Derives from a servicer, not from the generated class itself."""


def test_service_and_responses_are_found_through_the_generated_base() -> None:
    """S1: what is announced is what the generated code serves, for subclasses of subclasses too."""
    for servicer in (Inventory(), PickyInventory()):
        (service,) = read_servicer(servicer)
        assert service.name == SERVICE


def test_descriptors_are_complete_and_in_order() -> None:
    """S1: a coordinator that never saw these files can load them in the order they come, annotations too."""
    pool = descriptor_pool.DescriptorPool()
    for file in descriptors_of(read_servicer(Inventory())).file:
        pool.AddSerializedFile(file.SerializeToString())
    method = pool.FindServiceByName(SERVICE).FindMethodByName("Reserve")
    options = descriptor_pb2.MethodOptions.FromString(method.GetOptions().SerializeToString())
    assert options.Extensions[annotations_pb2.step].compensation == "Release"


class NoBase:
    """Forgot to derive from the generated class."""


class NoInventory:
    """The same, with a generated class's methods."""

    async def Reserve(self) -> None: ...

    async def Release(self) -> None: ...


class HalfInventory(InventoryServiceServicer):
    """Forgot one method, which a type checker would have said; some have none."""

    async def Reserve(
        self, request: ReserveRequest, context: grpc.aio.ServicerContext[ReserveRequest, Awaitable[ReserveResponse]]
    ) -> ReserveResponse:
        return ReserveResponse()


class PlainStream(HealthServicer):  # type: ignore[misc] # grpcio-health-checking ships no types
    """A stream in a plain function would hold a thread for as long as it lasts."""

    async def Check(self, request: object, context: object) -> None: ...

    async def List(self, request: object, context: object) -> None: ...

    def Watch(self, request: object, context: object) -> None: ...


def test_a_servicer_that_cannot_be_served_is_told_why() -> None:
    """L2: a mistake in a servicer is found when it is added, with a sentence that mends it."""
    half = HalfInventory()  # type: ignore[abstract] # pyright: ignore[reportAbstractUsage] # the planted mistake
    for servicer, sentence in (
        (Inventory, r"Inventory is a class: give add\(\) an instance"),
        (None, "add\\(\\) was given None"),
        (NoBase(), "NoBase has no generated base class: derive it from"),
        (
            NoInventory(),
            r"class NoInventory\(shop\.inventory\.v1\.inventory_pb2_grpc\.InventoryServiceServicer\)",
        ),
        (half, rf"HalfInventory leaves out Release of {SERVICE}: write `async def Release"),
        (PlainStream(), r"PlainStream\.Watch \(.+test_services\.py:\d+\) is a plain function, which only unary"),
    ):
        with pytest.raises(InvalidParticipantError, match=sentence):
            ParticipantServer("inventory", coordinator="localhost:7070").add(servicer)


def test_a_service_is_added_once() -> None:
    """L2: the second servicer of a service would never be called."""
    server = ParticipantServer("inventory", coordinator="localhost:7070")
    server.add(Inventory())
    with pytest.raises(InvalidParticipantError, match=f"{SERVICE} was added already"):
        server.add(PickyInventory())


def test_two_services_can_be_served_by_one_class() -> None:
    """S1: every generated base class counts."""

    class Nothing(InventoryServiceServicer, OrdersServiceServicer):
        """Leaves out everything."""

    nothing = Nothing()  # type: ignore[abstract] # pyright: ignore[reportAbstractUsage] # the planted mistake
    with pytest.raises(InvalidParticipantError, match="leaves out Reserve, Release"):
        read_servicer(nothing)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"name": "Payments"}, "'Payments' is no name of a participant"),
        ({"coordinator": ""}, "is no address of a coordinator"),
        ({"coordinator": "localhost"}, "write host:port"),
        ({"port": 70_000}, "port=70000 must be 0 to 65535"),
        ({"capacity": -1}, "capacity=-1"),
        ({"threads": 0}, "threads=0 at least 1"),
        ({"interceptors": [SyncStepInterceptor("payments")]}, "SyncStepInterceptor is no grpc.aio.ServerInterceptor"),
        ({"interceptors": [StepInterceptor("payments")]}, "makes steps by itself"),
        ({"host": "0.0.0.0"}, "no address that a coordinator can call"),  # noqa: S104 - that it is refused is the test
    ],
)
def test_arguments_that_cannot_work_are_refused(arguments: dict[str, object], sentence: str) -> None:
    """L2: a participant that could never be reached is refused before it starts."""
    usual: dict[str, object] = {"name": "payments", "coordinator": "localhost:7070"}
    with pytest.raises(InvalidParticipantError, match=sentence):
        ParticipantServer(**{**usual, **arguments})  # type: ignore[arg-type] # pyright: ignore[reportArgumentType] # wrong on purpose
