"""Requests that are wrong: refused with every fault at once, each with its path; nothing is stored, nothing breaks."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.protobuf.wrappers_pb2 import BytesValue

from amends.v1 import registry_service_pb2, saga_definition_pb2
from amends.v1 import saga_service_pb2 as pb
from scenario.v1.scenario_pb2 import DoRequest, ScenarioInput
from tests.integration.api.refusals import Refusal, refusal_of, refused
from tests.scenarios.inside import Inside, inside
from tests.unit.grpc_api.samples import SERVICE, errand, scenario_files
from tests.waiting import pause

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = pytest.mark.scenario

HEADERS_LIMIT_BYTES = 8_192
LIMIT_BYTES = 32_768
NASTY = "é\0\x1b[31m" * 100


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Inside]:
    """A coordinator with small limits; at the end it still starts sagas, and whatever was refused left no row."""
    async with inside(tmp_path, payload_limit_bytes=LIMIT_BYTES, stop_grace_s=0.1) as coordinator:
        await coordinator.sagas.RegisterSagaDefinition(pb.RegisterSagaDefinitionRequest(definition=errand()))
        yield coordinator
        assert not (await coordinator.sagas.ListSagas(pb.ListSagasRequest())).sagas
        assert not (
            await coordinator.registry.ListParticipants(registry_service_pb2.ListParticipantsRequest())
        ).participants
        assert (await coordinator.sagas.StartSaga(start())).started


# Any: each field has its own type.
def start(saga_id: str = "good", **fields: Any) -> pb.StartSagaRequest:
    """A good request, but for `fields`."""
    anything = AnyMessage()
    anything.Pack(DoRequest(name="a"))
    given: dict[str, Any] = {"saga_id": saga_id, "definition_name": "errand", "input": anything, **fields}
    return pb.StartSagaRequest(**given)


def payload(kind: str, value: bytes = b"") -> AnyMessage:
    """An Any of this type."""
    return AnyMessage(type_url=f"type.googleapis.com/{kind}", value=value)


async def test_start_saga_says_all_its_faults_at_once(served: Inside) -> None:
    """A malformed start names every field; nothing is stored."""
    request = start(
        saga_id="a b/c",
        definition_name="Errand!",
        definition_version="latest",
        input=AnyMessage(type_url="/", value=b"x" * 33_000),
        wait_timeout=Duration(seconds=61),
        labels={"Big": "x", "long": "x" * 257, "nul": "a\0b", **{f"k{n}": "" for n in range(16)}},
    )
    refusal = await refused(served.sagas.StartSaga(request))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST")
    assert {path.partition("[")[0] for path in refusal.paths} == {
        "saga_id",
        "definition_name",
        "definition_version",
        "input.type_url",
        "input",
        "wait_timeout",
        "labels",
    }


@pytest.mark.parametrize(
    ("fields", "code", "reason"),
    [
        ({"definition_name": "other"}, "NOT_FOUND", "DEFINITION_NOT_FOUND"),
        ({"definition_version": "0" * 16}, "NOT_FOUND", "DEFINITION_NOT_FOUND"),
        ({"input": payload("scenario.v1.ScenarioInput")}, "INVALID_ARGUMENT", "INVALID_PAYLOAD"),
        ({"input": payload("no.such.Type")}, "INVALID_ARGUMENT", "INVALID_PAYLOAD"),
        ({"input": payload("scenario.v1.DoRequest", b"\x0a\xff")}, "INVALID_ARGUMENT", "INVALID_PAYLOAD"),
        ({"input": payload("scenario.v1.DoRequest", b"\x0a\x02\xff\xfe")}, "INVALID_ARGUMENT", "INVALID_PAYLOAD"),
        ({"input": payload("scenario.v1.DoRequest", b"x" * (LIMIT_BYTES + 1))}, "INVALID_ARGUMENT", "INVALID_REQUEST"),
        ({"input": None}, "INVALID_ARGUMENT", "INVALID_REQUEST"),
        ({"saga_id": "-x"}, "INVALID_ARGUMENT", "INVALID_REQUEST"),
        ({"saga_id": "x" * 129}, "INVALID_ARGUMENT", "INVALID_REQUEST"),
        ({"saga_id": NASTY}, "INVALID_ARGUMENT", "INVALID_REQUEST"),
        ({"saga_id": "good\n"}, "INVALID_ARGUMENT", "INVALID_REQUEST"),
    ],
)
async def test_starts_that_are_refused(served: Inside, fields: dict[str, Any], code: str, reason: str) -> None:
    """Unknown definitions, other types, bytes that don't parse, too many bytes, ids that are none."""
    refusal = await refused(served.sagas.StartSaga(start(**fields)))
    assert (refusal.code.name, refusal.reason) == (code, reason)
    assert refusal.paths or refusal.resource
    assert refusal.message.isprintable()


def broken_definition(count: int, text: str) -> saga_definition_pb2.SagaDefinition:
    """A definition with some `5 * count` faults, which repeat a text."""
    definition = saga_definition_pb2.SagaDefinition(name=text, input_type=text, output_type=text)
    for _ in range(count):
        step = definition.steps.add(name=text, kind=99, after=[text], participant=text)
        step.action.method = text
        step.action.request.bindings.add(target=text, input=text)
        step.compensation.method = text
        step.action.timeout.seconds = -1
    return definition


async def test_hundreds_of_faults_fit_into_one_answer(served: Inside) -> None:
    """gRPC drops headers above 8 KiB: as many faults as fit are named, and how many more there are is said."""
    for count, text in ((60, "No"), (60, NASTY), (500, "x" * 1_000), (1, "語" * 20_000)):
        request = pb.RegisterSagaDefinitionRequest(definition=broken_definition(count, text))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await served.sagas.RegisterSagaDefinition(request)
        refusal = refusal_of(caught.value)
        assert (refusal.code.name, refusal.reason) == ("INVALID_ARGUMENT", "INVALID_DEFINITION")
        assert len(refusal.paths) > 3
        assert refusal.paths[-1] == "", "the last one says how many more"
        assert on_the_wire(caught.value) < HEADERS_LIMIT_BYTES


def on_the_wire(error: grpc.aio.AioRpcError) -> int:
    """How many bytes an answer's trailers take with a peer that knows base 64 only."""
    text = len((error.details() or "").encode())
    pairs = [
        (key, len(value) * (4 / 3 if isinstance(value, bytes) else 1)) for key, value in error.trailing_metadata() or ()
    ]
    return text + int(sum(len(key) + size + 32 for key, size in pairs))


async def test_a_small_definition_says_every_fault(served: Inside) -> None:
    """All faults at once, odd spans of time among them; the definition isn't stored."""
    definition = errand(name="odd")
    definition.timeout.CopyFrom(Duration(seconds=-1))
    definition.steps[0].action.timeout.CopyFrom(Duration(seconds=10**11))
    definition.steps[0].action.retry.initial_delay.CopyFrom(Duration(seconds=5, nanos=-3))
    definition.steps[0].action.retry.maximum_delay.CopyFrom(Duration(nanos=2_000_000_000))
    definition.steps[0].action.retry.total_timeout.CopyFrom(Duration())
    definition.steps[0].action.retry.maximum_refusal_count = -1
    definition.steps[0].action.request.bindings[1].target = "nowhere"
    refusal = await refused(
        served.sagas.RegisterSagaDefinition(pb.RegisterSagaDefinitionRequest(definition=definition))
    )
    assert refusal.reason == "INVALID_DEFINITION"
    assert set(refusal.paths) == {
        "timeout",
        "steps[0].action.timeout",
        "steps[0].action.retry.initial_delay",
        "steps[0].action.retry.maximum_delay",
        "steps[0].action.retry.total_timeout",
        "steps[0].action.retry.maximum_refusal_count",
        "steps[0].action.request.bindings[1].target",
    }
    unknown = await refused(served.sagas.GetSagaDefinition(pb.GetSagaDefinitionRequest(name="odd")))
    assert unknown.reason == "DEFINITION_NOT_FOUND"


async def test_a_definition_without_anything(served: Inside) -> None:
    """Nothing at all, and nothing in it."""
    nothing = await refused(served.sagas.RegisterSagaDefinition(pb.RegisterSagaDefinitionRequest()))
    assert nothing.paths == ("definition",)
    request = pb.RegisterSagaDefinitionRequest(definition=saga_definition_pb2.SagaDefinition())
    empty = await refused(served.sagas.RegisterSagaDefinition(request))
    assert {"name", "input_type", "steps"} <= set(empty.paths)


@pytest.mark.parametrize(
    "timeout",
    [
        Duration(seconds=-1),
        Duration(seconds=61),
        Duration(seconds=10**18),
        Duration(nanos=-1),
        Duration(seconds=1, nanos=-1),
        Duration(seconds=1, nanos=1_000_000_000),
    ],
    ids=str,
)
async def test_wait_saga_says_all_its_faults_at_once(served: Inside, timeout: Duration) -> None:
    """An odd id and an odd timeout, together and each alone."""
    both = await refused(served.sagas.WaitSaga(pb.WaitSagaRequest(saga_id="?", wait_timeout=timeout)))
    assert (both.reason, both.paths) == ("INVALID_REQUEST", ("saga_id", "wait_timeout"))
    one = await refused(served.sagas.WaitSaga(pb.WaitSagaRequest(saga_id="x", wait_timeout=timeout)))
    assert one.paths == ("wait_timeout",)
    none = await refused(served.sagas.WaitSaga(pb.WaitSagaRequest(saga_id="x", wait_timeout=Duration())))
    assert none.reason == "SAGA_NOT_FOUND"


@pytest.mark.parametrize("token", ["=", "é", "AAAA", "x" * 100_000, "MTIv", "OTk5OTk5OTk5OTk5OTk5OTk5OTk5L2E"])
async def test_list_sagas_says_all_its_faults_at_once(served: Inside, token: str) -> None:
    """States that are none, page sizes and tokens that are none."""
    states: Any = [0, 2, 99]  # Any: open enums take numbers that aren't values, which the stubs don't
    refusal = await refused(served.sagas.ListSagas(pb.ListSagasRequest(states=states, page_size=-1, page_token=token)))
    assert refusal.paths == ("states[0]", "states[2]", "page_size", "page_token")
    assert (await refused(served.sagas.ListSagas(pb.ListSagasRequest(page_size=1_001)))).paths == ("page_size",)


def announcement(**fields: object) -> registry_service_pb2.RegisterParticipantRequest:
    """A good announcement, but for `fields`."""
    given: dict[str, Any] = {
        "name": "steps",
        "services": [SERVICE],
        "instance": registry_service_pb2.ParticipantInstance(instance_id="i", address="127.0.0.1:1"),
        "descriptors": scenario_files(),
        **fields,
    }
    return registry_service_pb2.RegisterParticipantRequest(**given)


async def announced_badly(served: Inside, **fields: object) -> Refusal:
    """How an announcement is refused."""
    return await refused(served.registry.RegisterParticipant(announcement(**fields)))


async def test_register_participant_says_all_its_faults_at_once(served: Inside) -> None:
    """A malformed announcement names every field; nothing is stored."""
    instance = registry_service_pb2.ParticipantInstance(instance_id="a b", address="unix:/tmp/x", capacity=-1)
    files = scenario_files()
    files.file[0].source_code_info.location.add(leading_comments="x" * 33_000)
    refusal = await announced_badly(
        served, name=NASTY, services=["", "no service", SERVICE], instance=instance, descriptors=files
    )
    assert set(refusal.paths) == {
        "name",
        "services[0]",
        "services[1]",
        "instance.instance_id",
        "instance.address",
        "instance.capacity",
        "descriptors",
    }
    empty = await refused(served.registry.RegisterParticipant(registry_service_pb2.RegisterParticipantRequest()))
    assert set(empty.paths) == {"name", "services", "instance.instance_id", "instance.address"}
    assert "services" in (await announced_badly(served, services=[f"a.B{n}" for n in range(65)])).paths
    assert (await announced_badly(served, services=["a.B"])).paths == ("services[0]",)
    assert (await announced_badly(served, descriptors=None)).reason == "PARTICIPANT_NOT_FOUND"


async def test_addresses_that_are_none(served: Inside) -> None:
    """No announcement makes us open anything but a connection to a host and port."""
    no_ports = ["", "localhost", ":1", "a:0", "a:65536", "a:99999999999", "a:1\n"]
    for address in (*no_ports, "http://a:1", "dns:///a:1", "a:1,b:2", "a b:1", "[x]:1", "é:1"):
        instance = registry_service_pb2.ParticipantInstance(instance_id="i", address=address)
        assert (await announced_badly(served, instance=instance)).paths == ("instance.address",), address


async def test_what_gRPC_itself_refuses(served: Inside) -> None:
    """Too large for one message, no such method, a deadline that is over: the process stays as it is."""
    too_large = payload("scenario.v1.DoRequest", b"x" * (5 << 20))
    with pytest.raises(grpc.aio.AioRpcError) as large:
        await served.sagas.StartSaga(start(input=too_large))
    assert large.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    channel: Any = served.channel  # Any: bytes in, bytes out, which grpcio's stubs can't say
    with pytest.raises(grpc.aio.AioRpcError) as unknown:
        await channel.unary_unary("/amends.v1.SagaService/Nothing")(b"")
    assert unknown.value.code() is grpc.StatusCode.UNIMPLEMENTED
    with pytest.raises(grpc.aio.AioRpcError) as late:
        await served.sagas.WaitSaga(pb.WaitSagaRequest(saga_id="x"), timeout=0)
    # On one machine the answer may be faster than even this deadline.
    assert late.value.code() in (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.NOT_FOUND)
    broken = await refused(channel.unary_unary("/amends.v1.SagaService/StartSaga")(b"\xff\xff"))
    assert broken.reason == "INVALID_REQUEST"


NO_JSON = Duration(seconds=2**63 - 1, nanos=-1)


@pytest.mark.parametrize(
    "delay", [Duration(seconds=-1, nanos=-1), NO_JSON], ids=["in range", "of which JSON knows nothing"]
)
async def test_odd_inputs_that_are_well_formed_are_kept(delay: Duration, tmp_path: Path) -> None:
    """NUL, escapes, the largest numbers: a payload is bytes, and the client gets them back as they are; as bytes, where
    people's tools could not show them.
    """
    odd = ScenarioInput(amount=-(2**63), note="a\0b\x1b[31m\u202e" * 50, delay=delay)
    async with inside(tmp_path) as coordinator:
        definition = errand(name="odd")
        definition.input_type = "scenario.v1.ScenarioInput"
        definition.ClearField("output")
        definition.ClearField("output_type")
        del definition.steps[0].action.request.bindings[0]
        await coordinator.sagas.RegisterSagaDefinition(pb.RegisterSagaDefinitionRequest(definition=definition))
        anything = AnyMessage()
        anything.Pack(odd)
        labels = {"odd": "é\x1b[31m" * 10}
        request = start("odd", definition_name="odd", input=anything, labels=labels)
        assert (await coordinator.sagas.StartSaga(request)).started
        saga = (await coordinator.sagas.GetSaga(pb.GetSagaRequest(saga_id="odd"))).saga
        assert not (await coordinator.sagas.StartSaga(request)).started
    kept, raw = ScenarioInput(), BytesValue()
    if delay == NO_JSON:
        assert saga.input.type_url == f"{anything.type_url}/google.protobuf.BytesValue"
        assert saga.input.Unpack(raw)
        kept = ScenarioInput.FromString(raw.value)
    else:
        assert saga.input.Unpack(kept)
    assert kept == odd
    assert dict(saga.labels) == labels


async def test_a_large_announcement_holds_up_nobody(tmp_path: Path) -> None:
    """L2: thousands of types take their time to check, and the coordinator goes on meanwhile."""
    files = scenario_files()
    for number in range(10_000):
        files.file[0].message_type.add(name=f"Type{number}").field.add(name="text", number=1, type=9, label=1)
    async with inside(tmp_path) as coordinator:
        request = announcement(services=[f"{files.file[0].package}.S"], descriptors=files)
        files.file[0].service.add(name="S").method.add(
            name="M", input_type=f".{files.file[0].package}.Type0", output_type=f".{files.file[0].package}.Type1"
        )
        request.descriptors.CopyFrom(files)
        announcing = asyncio.ensure_future(coordinator.registry.RegisterParticipant(request))
        turns = 0
        while not announcing.done():
            await pause()
            turns += 1
        assert (await announcing).participant.name == "steps"
    assert turns > 5, "the loop stood still"
