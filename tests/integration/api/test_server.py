"""The server as a whole: every method answers, faults tell nothing, health and reflection, stopping, a taken port."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message_factory import GetMessageClass

# grpcio-health-checking and grpcio-reflection ship no types.
from grpc_health.v1 import health_pb2, health_pb2_grpc  # type: ignore[import-untyped]  # ships no types
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc  # type: ignore[import-untyped]  # ships no types

from amends.v1 import saga_service_pb2 as pb
from amends_coordinator.grpc_api.gate import Gate
from amends_coordinator.grpc_api.handlers import Edge, service_handler
from amends_coordinator.grpc_api.server import Api, ApiSettings, CannotListenError
from amends_coordinator.grpc_api.services import PUBLIC_SERVICES, SAGA_SERVICE
from amends_coordinator.ports.ledger import LedgerUnavailableError
from tests.integration.api.conftest import start_request
from tests.integration.api.refusals import refused
from tests.unit.engine.rig import Telemetry
from tests.waiting import eventually

if TYPE_CHECKING:
    from tests.integration.api.conftest import Served

Code = grpc.StatusCode
METHODS = [method for service in PUBLIC_SERVICES for method in service.methods]
BUILT = {
    "RegisterSagaDefinition",
    "GetSagaDefinition",
    "StartSaga",
    "GetSaga",
    "ListSagas",
    "WaitSaga",
    "WatchSaga",
    "AbortSaga",
    "RetryDeadLetter",
    "ResolveDeadLetter",
    "RunSagaNow",
    "TerminateSaga",
    "ListDeadLetters",
    "ListAuditEntries",
    "ListNodes",
    "ListSagaDefinitions",
    "RegisterParticipant",
    "DeregisterParticipant",
    "ListParticipants",
}


# Any: of every method's own type; the stubs of grpcio can't say more.
def call(channel: Any, method: MethodDescriptor, data: bytes) -> Any:
    """Call a method with raw bytes."""
    service = method.containing_service
    assert service is not None
    path = f"/{service.full_name}/{method.name}"
    if method.server_streaming:
        return channel.unary_stream(path)(data).read()
    return channel.unary_unary(path)(data)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
async def test_every_method_is_built_or_not_yet(served: Served, method: MethodDescriptor) -> None:
    """Every method of every public service answers: what isn't built says so with its reason, streams too."""
    request = GetMessageClass(method.input_type)().SerializeToString()
    if method.name.startswith("List") and method.name in BUILT:
        await call(served.channel, method, request)
        return
    refusal = await refused(call(served.channel, method, request))
    if method.name in BUILT:
        assert (refusal.code, refusal.reason) == (Code.INVALID_ARGUMENT, "INVALID_REQUEST")
    else:
        assert (refusal.code, refusal.reason) == (Code.UNIMPLEMENTED, "NOT_YET")
        assert method.name in refusal.message


@pytest.mark.parametrize("method", [each for each in METHODS if each.name in BUILT], ids=lambda method: method.name)
async def test_bytes_that_do_not_parse(served: Served, method: MethodDescriptor) -> None:
    """Garbage on the wire is INVALID_ARGUMENT with our reason, not gRPC's."""
    refusal = await refused(call(served.channel, method, b"\xff\xff\xff"))
    assert (refusal.code, refusal.reason) == (Code.INVALID_ARGUMENT, "INVALID_REQUEST")


async def test_an_unexpected_fault_tells_nothing(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    """A bug is INTERNAL without its text; the log has the traceback. The next request is answered (L2)."""
    served.ledger.fault = ZeroDivisionError("the secret of the ledger")
    refusal = await refused(served.sagas.GetSaga(pb.GetSagaRequest(saga_id="s-1")))
    assert (refusal.code, refusal.reason) == (Code.INTERNAL, "COORDINATOR_FAULT")
    assert "secret" not in refusal.message
    assert "ZeroDivisionError" in "".join(capsys.readouterr())
    served.ledger.fault = None
    assert (await refused(served.sagas.GetSaga(pb.GetSagaRequest(saga_id="s-1")))).reason == "SAGA_NOT_FOUND"


async def test_a_ledger_out_of_reach_is_unavailable(served: Served) -> None:
    """Database down: UNAVAILABLE with a delay after which to try again."""
    served.ledger.fault = LedgerUnavailableError("postgresql://user:password@db")
    refusal = await refused(served.sagas.GetSaga(pb.GetSagaRequest(saga_id="s-1")))
    assert (refusal.code, refusal.reason, refusal.retry_s) == (Code.UNAVAILABLE, "LEDGER_UNAVAILABLE", 1)
    assert "password" not in refusal.message


async def health(served: Served, service: str) -> int:
    """What health says of a service."""
    stub: Any = health_pb2_grpc.HealthStub(served.channel)  # Any: untyped, see the imports
    answer: Any = await stub.Check(health_pb2.HealthCheckRequest(service=service))
    return int(answer.status)


async def test_health_of_the_process_and_each_service(served: Served) -> None:
    """Health answers for the process and each service alike, and says what of it doesn't work."""
    ready = ["", "readiness", *(service.full_name for service in PUBLIC_SERVICES)]
    parts = ["liveness", "ledger", "sweeper"]
    serving, not_serving = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
    assert {await health(served, name) for name in (*ready, *parts)} == {serving}
    await served.api.health.tell(ledger=False)
    assert {await health(served, name) for name in ready} == {not_serving}
    assert [await health(served, name) for name in parts] == [serving, not_serving, serving]
    await served.api.health.tell(sweeper=False)
    assert {await health(served, name) for name in ready} == {not_serving}
    assert [await health(served, name) for name in parts] == [serving, serving, not_serving]
    await served.api.health.tell()
    assert {await health(served, name) for name in (*ready, *parts)} == {serving}


async def test_reflection_knows_the_services_and_error_details(served: Served) -> None:
    """grpcurl without our protos: the services are listed, and `google.rpc` details can be printed. What only our own
    client speaks is not among them.
    """
    grpc_module: Any = reflection_pb2_grpc  # Any: untyped, see the imports
    stub = grpc_module.ServerReflectionStub(served.channel)
    ask = reflection_pb2.ServerReflectionRequest
    stream: Any = stub.ServerReflectionInfo(
        iter([ask(list_services=""), ask(file_containing_symbol="google.rpc.BadRequest")])
    )
    listed: Any = await stream.read()
    names = {service.name for service in listed.list_services_response.service}
    assert {service.full_name for service in PUBLIC_SERVICES} | {"grpc.health.v1.Health"} <= names
    assert not [name for name in names if name.startswith("amends.internal.")]
    found: Any = await stream.read()
    assert found.file_descriptor_response.file_descriptor_proto


async def test_stopping_answers_what_is_under_way(served: Served) -> None:
    """SIGTERM: nothing new is taken, what is under way is answered."""
    await served.register()
    served.driving.open_door.clear()
    under_way = asyncio.ensure_future(served.sagas.StartSaga(start_request()))
    await served.driving.arrived.wait()
    stopping = asyncio.create_task(served.api.stop(10))
    late = None
    while late is None or late.reason != "STOPPING":
        late = await refused(served.sagas.GetSaga(pb.GetSagaRequest(saga_id="s-1")))
    assert (late.code, late.retry_s) == (Code.UNAVAILABLE, 1)
    assert await health(served, "") == health_pb2.HealthCheckResponse.NOT_SERVING
    served.driving.open_door.set()
    assert (await under_way).started
    await stopping


async def test_an_engine_that_stops_is_unavailable(served: Served) -> None:
    """A start at a stopping coordinator is sent elsewhere."""
    await served.register()
    served.driving.stopping = True
    refusal = await refused(served.sagas.StartSaga(start_request()))
    assert (refusal.code, refusal.reason, refusal.retry_s) == (Code.UNAVAILABLE, "STOPPING", 1)


async def test_stopping_cuts_what_never_ends(served: Served) -> None:
    """One that watches health holds nobody up: the server ends all the same."""
    stub: Any = health_pb2_grpc.HealthStub(served.channel)  # Any: untyped, see the imports
    watch: Any = stub.Watch(health_pb2.HealthCheckRequest())
    await watch.read()
    async with asyncio.timeout(5):
        await served.api.stop(30)


def other_api(served: Served, host: str, port: int) -> Api:
    """A second server for the same things."""
    settings = ApiSettings(host=host, port=port, ledger_name="x", payload_limit_bytes=1_024)
    # What it would serve doesn't matter: it never starts.
    unused: Any = object()
    return Api(
        settings,
        driving=served.driving,
        operating=unused,
        ledger=served.ledger,
        registry=unused,
        statics=unused,
        catalog=unused,
        clock=unused,
        telemetry=unused,
    )


async def test_a_taken_port_is_a_clear_error(served: Served) -> None:
    """A port already taken is a clear error, not a silent second listener."""
    with pytest.raises(CannotListenError, match=f"port {served.port} on 127.0.0.1 is already taken; "):
        other_api(served, "127.0.0.1", served.port).bind()


async def test_an_address_of_somebody_else_is_a_clear_error(served: Served) -> None:
    """An address that this machine doesn't have names the setting to change."""
    with pytest.raises(CannotListenError, match="AMENDS_HOST"):
        other_api(served, "192.0.2.1", 0).bind()


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 here")
async def test_ipv6_loopback(served: Served) -> None:
    """An IPv6 address may be given with or without brackets."""
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        pytest.skip("no IPv6 loopback here")
    assert other_api(served, "::1", 0).bind() > 0
    assert other_api(served, "[::1]", 0).bind() > 0


def test_a_misspelt_method_is_a_programming_error() -> None:
    """A servicer's method that the service doesn't have would silently never be called."""

    class Misspelt:
        """Has a method that is not in the proto."""

        async def StartSga(self) -> None:
            """Never called."""

    async def build() -> None:
        service_handler(SAGA_SERVICE, Misspelt(), Edge(Gate(), Telemetry()))

    with pytest.raises(TypeError, match="StartSga"):
        asyncio.run(build())


async def test_gate_waits_for_the_last_one() -> None:
    """Closing returns once nobody is inside, or after the grace."""
    gate = Gate()
    gate.enter()
    await gate.close(grace_s=0.001)
    closing = asyncio.create_task(gate.close(grace_s=30))
    await asyncio.sleep(0)
    assert not closing.done()
    gate.leave()
    await eventually(closing.done, what="the gate is closed")
