"""`SagaService` over real gRPC: definitions, starts, waiting, lists."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from amends.v1 import saga_definition_pb2, saga_pb2
from amends.v1 import saga_service_pb2 as pb
from amends_coordinator.core.definition import StoredDefinition
from amends_coordinator.core.ids import DefinitionVersion, Instant, SagaId
from amends_coordinator.definitions.registration import resolve
from amends_coordinator.grpc_api.validation import encoded_token
from scenario.v1 import scenario_pb2
from tests.integration.api.conftest import PAYLOAD_LIMIT_BYTES, start_request
from tests.integration.api.refusals import refused
from tests.unit.grpc_api.samples import errand
from tests.waiting import eventually

if TYPE_CHECKING:
    from tests.integration.api.conftest import Served

Code = grpc.StatusCode
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


async def test_registered_definition_is_resolved_and_comes_back(served: Served) -> None:
    """A definition is answered with everything resolved, and is the same when it is asked for."""
    registered = await served.sagas.RegisterSagaDefinition(pb.RegisterSagaDefinitionRequest(definition=errand()))
    found = await served.sagas.GetSagaDefinition(pb.GetSagaDefinitionRequest(name="errand"))
    assert found.definition == registered.definition
    assert found.definition.steps[0].compensation.method == "scenario.v1.StepService/Undo"
    exact = pb.GetSagaDefinitionRequest(name="errand", version=found.definition.version)
    assert (await served.sagas.GetSagaDefinition(exact)).definition == registered.definition


async def test_a_definition_may_refer_to_what_is_announced(served: Served) -> None:
    """A client that sends no files refers to what participants have announced; the stored one carries its own."""
    await served.announce()
    request = pb.RegisterSagaDefinitionRequest(definition=errand(with_files=False))
    registered = await served.sagas.RegisterSagaDefinition(request)
    assert "scenario/v1/scenario.proto" in {file.name for file in registered.definition.descriptors.file}


async def test_known_content_moves_nothing(served: Served) -> None:
    """By name a saga runs the newest created version; registering known content again moves nothing (F19)."""
    first = await served.register()
    changed = errand()
    changed.timeout.CopyFrom(Duration(seconds=5))
    served.clock.advance(1)
    second = await served.sagas.RegisterSagaDefinition(pb.RegisterSagaDefinitionRequest(definition=changed))
    served.clock.advance(1)
    assert await served.register() == first
    started = await served.sagas.StartSaga(start_request())
    assert started.saga.definition_version == second.definition.version != first


async def test_old_content_moves_nothing_after_a_restart_either(served: Served) -> None:
    """F19: a process that begins on versions of before starts sagas by name with the newest of them, also if what a
    client registers first is an older one.
    """
    first, second = errand(), errand()
    second.timeout.CopyFrom(Duration(seconds=5))
    newest = ""
    for created_s, written in enumerate((first, second)):
        resolved = resolve(written)
        newest = resolved.version
        content = resolved.SerializeToString(deterministic=True)
        earlier = StoredDefinition(
            name="errand", version=DefinitionVersion(newest), content=content, created_time=Instant(created_s)
        )
        await served.ledger.put_definition(earlier)
    assert await served.register() != newest
    assert (await served.sagas.StartSaga(start_request())).saga.definition_version == newest


async def test_definitions_are_listed_newest_first(served: Served) -> None:
    """Every version is on one page, without its descriptors; what can't be read is left out."""
    for number in range(20):
        served.clock.advance(1)
        await served.register(f"errand-{number}")
    served.clock.advance(1)
    damaged = StoredDefinition(
        name="damaged", version=DefinitionVersion("00"), content=b"\xff", created_time=served.clock.now()
    )
    await served.ledger.put_definition(damaged)
    first = await served.sagas.ListSagaDefinitions(pb.ListSagaDefinitionsRequest(page_size=19))
    rest = await served.sagas.ListSagaDefinitions(
        pb.ListSagaDefinitionsRequest(page_size=19, page_token=first.next_page_token)
    )
    listed = [*first.definitions, *rest.definitions]
    assert [each.name for each in listed] == [f"errand-{number}" for number in range(19, -1, -1)]
    assert rest.next_page_token == ""
    whole = (await served.sagas.GetSagaDefinition(pb.GetSagaDefinitionRequest(name="errand-3"))).definition
    whole.ClearField("descriptors")
    assert listed[16] == whole


async def test_a_page_of_definitions_fits_into_a_message(served: Served) -> None:
    """L2: however large definitions are, no page is larger than what a client takes, and none is left out."""
    content = saga_definition_pb2.SagaDefinition(output_type="x" * 700_000).SerializeToString()
    for number in range(20):
        big = StoredDefinition(
            name=f"big-{number}", version=DefinitionVersion("0" * 16), content=content, created_time=Instant(number)
        )
        await served.ledger.put_definition(big)
    names: list[str] = []
    request = pb.ListSagaDefinitionsRequest()
    while not names or request.page_token:
        page = await served.sagas.ListSagaDefinitions(request)
        names += [each.name for each in page.definitions]
        request.page_token = page.next_page_token
    assert names == [f"big-{number}" for number in range(19, -1, -1)]


async def test_a_made_up_page_token_of_definitions(served: Served) -> None:
    """A token that this list never answered is refused with its path."""
    for token in ("x", encoded_token("1/order"), encoded_token("1/order/zz")):
        refusal = await refused(served.sagas.ListSagaDefinitions(pb.ListSagaDefinitionsRequest(page_token=token)))
        assert (refusal.code, refusal.paths) == (Code.INVALID_ARGUMENT, ("page_token",))


async def test_a_faulty_definition_reports_every_fault(served: Served) -> None:
    """Registration reports every fault at once with its path, and stores nothing."""
    definition = errand()
    definition.output_type = "scenario.v1.Nothing"
    definition.steps[0].action.method = "scenario.v1.StepService/Dance"
    definition.timeout.CopyFrom(Duration(seconds=-1))
    refusal = await refused(
        served.sagas.RegisterSagaDefinition(pb.RegisterSagaDefinitionRequest(definition=definition))
    )
    assert (refusal.code, refusal.reason) == (Code.INVALID_ARGUMENT, "INVALID_DEFINITION")
    assert {"output_type", "steps[0].action.method", "timeout"} <= set(refusal.paths)
    missing = await refused(served.sagas.GetSagaDefinition(pb.GetSagaDefinitionRequest(name="errand")))
    assert (missing.code, missing.reason, missing.resource) == (Code.NOT_FOUND, "DEFINITION_NOT_FOUND", "errand")


async def test_started_saga_is_as_it_was_asked_for(served: Served) -> None:
    """A started saga has its input, labels and trace, and `GetSaga` answers it from the ledger (S11)."""
    version = await served.register()
    request = start_request()
    request.labels["shop"] = "one"
    started = await served.sagas.StartSaga(request, metadata=(("traceparent", PARENT), ("tracestate", "a=1")))
    saga = (await served.sagas.GetSaga(pb.GetSagaRequest(saga_id="s-1"))).saga
    assert started.started
    assert started.saga == saga
    assert (saga.state, saga.definition_version, saga.traceparent) == (saga_pb2.Saga.STATE_RUNNING, version, PARENT)
    assert dict(saga.labels) == {"shop": "one"}
    assert saga.input == request.input
    assert served.driving.started[0].tracestate == "a=1"


async def test_an_id_is_made_where_none_is_given(served: Served) -> None:
    """Without an id every start is a saga of its own."""
    await served.register()
    first, second = [await served.sagas.StartSaga(start_request("")) for _ in range(2)]
    assert first.started
    assert second.started
    assert len({first.saga.saga_id, second.saga.saga_id, ""}) == 3


async def test_f05_started_again_answers_the_saga_as_it_is(served: Served) -> None:
    """F05, S9: the same id, definition name and input answer the saga as it is, even after it ended."""
    await served.register()
    await served.sagas.StartSaga(start_request())
    again = await served.sagas.StartSaga(start_request())
    assert not again.started
    await served.driving.end("s-1")
    ended = await served.sagas.StartSaga(start_request())
    assert (ended.started, ended.saga.state) == (False, saga_pb2.Saga.STATE_COMMITTED)


async def test_started_again_with_a_newer_definition(served: Served) -> None:
    """The definition's *name* counts: a newer version registered in between changes no running saga."""
    version = await served.register()
    await served.sagas.StartSaga(start_request())
    newer = errand()
    newer.input_type = "scenario.v1.DoFindableRequest"
    served.clock.advance(1)
    await served.sagas.RegisterSagaDefinition(pb.RegisterSagaDefinitionRequest(definition=newer))
    again = await served.sagas.StartSaga(start_request())
    assert (again.started, again.saga.definition_version) == (False, version)
    fresh = await refused(served.sagas.StartSaga(start_request("s-2")))
    assert (fresh.reason, fresh.paths) == ("INVALID_PAYLOAD", ("input",))


async def test_an_input_that_chooses_no_participant_is_refused(served: Served) -> None:
    """Where the input chooses who serves a step, a start that names nobody there stores nothing; a repeated start of a
    saga that began under an earlier version, which didn't ask, still answers that saga.
    """
    await served.register()
    nameless = scenario_pb2.DoRequest(name="Bank A", amount=10)
    await served.sagas.StartSaga(start_request(payload=nameless))
    choosing = pb.RegisterSagaDefinitionRequest(definition=errand(participant_input="name"))
    served.clock.advance(1)
    await served.sagas.RegisterSagaDefinition(choosing)
    refusal = await refused(served.sagas.StartSaga(start_request("s-2", payload=nameless)))
    assert (refusal.code, refusal.reason, refusal.paths) == (Code.INVALID_ARGUMENT, "INVALID_PAYLOAD", ("input.name",))
    assert len(served.driving.started) == 1
    assert not (await served.sagas.StartSaga(start_request(payload=nameless))).started
    good = scenario_pb2.DoRequest(name="bank-a", amount=10)
    assert (await served.sagas.StartSaga(start_request("s-2", payload=good))).started


@pytest.mark.parametrize("difference", ["input", "type", "definition"])
async def test_f06_an_id_in_use_is_refused(served: Served, difference: str) -> None:
    """F06, S9: the same id with another input or definition is refused, and the first saga is unchanged."""
    await served.register()
    await served.register("other")
    await served.sagas.StartSaga(start_request())
    others = {
        "input": start_request(payload=scenario_pb2.DoRequest(name="a", amount=99)),
        "type": start_request(payload=scenario_pb2.FindRequest(name="a")),
        "definition": start_request(name="other"),
    }
    refusal = await refused(served.sagas.StartSaga(others[difference]))
    assert (refusal.code, refusal.reason, refusal.resource) == (Code.ALREADY_EXISTS, "SAGA_ID_IN_USE", "s-1")
    saga = (await served.sagas.GetSaga(pb.GetSagaRequest(saga_id="s-1"))).saga
    assert (saga.definition_name, saga.input) == ("errand", start_request().input)


async def test_f06_many_at_once_are_one_saga(served: Served) -> None:
    """F06: 50 mixed starts with one id at once: exactly one saga, the others hear of it or are refused."""
    await served.register()
    calls = [
        served.sagas.StartSaga(start_request(payload=scenario_pb2.DoRequest(name="a", amount=10 + 89 * (i % 2))))
        for i in range(50)
    ]
    answers = await asyncio.gather(*calls, return_exceptions=True)
    good = [answer for answer in answers if isinstance(answer, pb.StartSagaResponse)]
    assert sum(answer.started for answer in good) == 1
    assert len(good) == 25
    listed = await served.sagas.ListSagas(pb.ListSagasRequest())
    assert len(listed.sagas) == 1


async def test_equal_inputs_may_have_other_bytes(served: Served) -> None:
    """Equal input means the same message, not the same bytes on the wire."""
    await served.register()
    await served.sagas.StartSaga(start_request())
    request = start_request()
    name, amount = b"\x0a\x01a", b"\x10\x0a"
    assert request.input.value == name + amount
    request.input.value = amount + name
    assert not (await served.sagas.StartSaga(request)).started


async def test_bad_start_names_every_fault(served: Served) -> None:
    """Bad input: every fault with its path, nothing stored."""
    await served.register()
    request = start_request("a b", name="Errand", version="1")
    request.labels["Big"] = ""
    request.input.value = b"x" * (PAYLOAD_LIMIT_BYTES + 1)
    refusal = await refused(served.sagas.StartSaga(request))
    assert (refusal.code, refusal.reason) == (Code.INVALID_ARGUMENT, "INVALID_REQUEST")
    assert refusal.paths == ("saga_id", "definition_name", "definition_version", "input", "labels['Big']")
    assert not served.driving.started


@pytest.mark.parametrize(("type_name", "value"), [("scenario.v1.DoRequest", b"\xff\xff"), ("a.B", b"")])
async def test_payload_of_another_type_or_garbage(served: Served, type_name: str, value: bytes) -> None:
    """A payload that isn't what the definition takes is refused, and nothing is stored."""
    await served.register()
    request = start_request()
    request.input.type_url = f"type.googleapis.com/{type_name}"
    request.input.value = value
    refusal = await refused(served.sagas.StartSaga(request))
    assert (refusal.code, refusal.reason, refusal.paths) == (Code.INVALID_ARGUMENT, "INVALID_PAYLOAD", ("input",))
    assert not served.driving.started


async def test_unknown_saga_and_definition(served: Served) -> None:
    """What isn't there is NOT_FOUND, with the resource's name."""
    for call in (
        served.sagas.GetSaga(pb.GetSagaRequest(saga_id="s-9")),
        served.sagas.WaitSaga(pb.WaitSagaRequest(saga_id="s-9")),
    ):
        refusal = await refused(call)
        assert (refusal.code, refusal.reason, refusal.resource) == (Code.NOT_FOUND, "SAGA_NOT_FOUND", "s-9")
    refusal = await refused(served.sagas.StartSaga(start_request()))
    assert (refusal.code, refusal.reason) == (Code.NOT_FOUND, "DEFINITION_NOT_FOUND")


async def test_a_client_that_goes_away_changes_nothing(served: Served) -> None:
    """A start goes on when its client hangs up: the saga becomes durable all the same (S11)."""
    await served.register()
    served.driving.open_door.clear()
    call = served.sagas.StartSaga(start_request())
    answer = asyncio.ensure_future(call)
    await served.driving.arrived.wait()
    call.cancel()
    await asyncio.wait((answer,))
    served.driving.open_door.set()
    await eventually(lambda: bool(served.driving.started), what="the start goes on")
    assert await served.ledger.load(SagaId("s-1")) is not None


async def test_wait_answers_at_the_end(served: Served) -> None:
    """`WaitSaga` answers once the saga has ended, with its output."""
    await served.register()
    await served.sagas.StartSaga(start_request())
    waiting = asyncio.ensure_future(served.sagas.WaitSaga(pb.WaitSagaRequest(saga_id="s-1")))
    await eventually(lambda: served.driving.waiting == 1, what="the call waits")
    assert not waiting.done()
    await served.driving.end("s-1")
    saga = (await waiting).saga
    assert saga.state == saga_pb2.Saga.STATE_COMMITTED
    assert saga.output.TypeName() == "scenario.v1.FindResponse"


async def test_wait_answers_as_it_is_when_time_is_over(served: Served) -> None:
    """After `wait_timeout` the saga is answered as it is; an odd timeout is refused."""
    await served.register()
    await served.sagas.StartSaga(start_request())
    request = pb.WaitSagaRequest(saga_id="s-1", wait_timeout=Duration(nanos=1_000_000))
    assert (await served.sagas.WaitSaga(request)).saga.state == saga_pb2.Saga.STATE_RUNNING
    odd = pb.WaitSagaRequest(saga_id="s-1", wait_timeout=Duration(seconds=61))
    refusal = await refused(served.sagas.WaitSaga(odd))
    assert (refusal.reason, refusal.paths) == ("INVALID_REQUEST", ("wait_timeout",))


async def test_lists_page_by_page(served: Served) -> None:
    """Newest first, by state, in pages whose tokens lead on without a gap or a repetition."""
    await served.register()
    for number in range(5):
        served.clock.advance(1)
        await served.sagas.StartSaga(start_request(f"s-{number}"))
    await served.driving.end("s-3")
    seen: list[list[str]] = []
    request = pb.ListSagasRequest(states=[saga_pb2.Saga.STATE_RUNNING], page_size=2)
    while True:
        page = await served.sagas.ListSagas(request)
        seen.append([saga.saga_id for saga in page.sagas])
        if not page.next_page_token:
            break
        request.page_token = page.next_page_token
    assert seen == [["s-4", "s-2"], ["s-1", "s-0"]]
    assert len((await served.sagas.ListSagas(pb.ListSagasRequest())).sagas) == 5


async def test_bad_list_names_every_fault(served: Served) -> None:
    """Unknown states, odd sizes and made-up tokens are refused together."""
    request = pb.ListSagasRequest(page_size=1_001, page_token="x")
    request.states.append(saga_pb2.Saga.STATE_RUNNING)
    request.states.append(saga_pb2.Saga.STATE_UNSPECIFIED)
    refusal = await refused(served.sagas.ListSagas(request))
    assert refusal.paths == ("states[1]", "page_size", "page_token")


async def test_a_definition_is_required(served: Served) -> None:
    """An empty request is told what it lacks."""
    refusal = await refused(served.sagas.RegisterSagaDefinition(pb.RegisterSagaDefinitionRequest()))
    assert refusal.paths == ("definition",)
    empty = pb.RegisterSagaDefinitionRequest(definition=saga_definition_pb2.SagaDefinition())
    assert "name" in (await refused(served.sagas.RegisterSagaDefinition(empty))).paths
