"""Everything that has a limit: at it all is well, beyond it there is a defined end, and the coordinator goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc
import pytest
from google.protobuf.any_pb2 import Any as AnyMessage

# googleapis-common-protos ships no marker for mypy.
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]  # ships no types

from amends import Committed, Compensated, Saga
from amends.v1 import operator_service_pb2, operator_service_pb2_grpc, registry_service_pb2, saga_pb2
from amends.v1 import saga_service_pb2 as pb
from scenario.v1.scenario_pb2 import DoResponse, ScenarioInput, ScenarioOutput
from tests.integration.api.refusals import refused
from tests.scenarios.inside import Inside, inside
from tests.scenarios.one_step import BOUND, SHORT
from tests.scenarios.raw import Reply, raw_steps
from tests.scenarios.sagas import Do, Undo, steps

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.scenario

LIMIT_BYTES = 20_000
NASTY = "card\0 declined\x1b[31m\u202e\r\n" * 300
TEXT_LIMIT_BYTES = 2_048


def copying(name: str) -> Saga[ScenarioInput, ScenarioOutput]:
    """A saga whose second request copies the first response, and whose output is the second response."""
    saga: Saga[ScenarioInput, ScenarioOutput] = Saga(name, input=ScenarioInput, output=ScenarioOutput)
    first = saga.step("first", Do(name=saga.input.note))
    first.compensated_by(Undo(effect_id="e", name="first"))
    second = saga.step("second", Do(name=first.response.effect_id), retry=SHORT)
    second.compensated_by(Undo(effect_id="e", name="second"))
    saga.output(ScenarioOutput)(effect_id=second.response.effect_id)
    return saga


async def test_payloads_at_the_limit_and_beyond(tmp_path: Path) -> None:
    """L1, L2: an input at the limit runs, one byte more is refused and stored nowhere; a request that would grow larger
    is never sent, nor is what was to be sent beside it, and its step counts as refused; a response beyond it proves
    nothing.
    """
    most = LIMIT_BYTES - 10
    full = Reply(body=DoResponse(effect_id="x" * most).SerializeToString())
    grown = Reply(body=DoResponse(effect_id="x" * (LIMIT_BYTES - 4), name="").SerializeToString())
    over = Reply(body=DoResponse(effect_id="x" * LIMIT_BYTES).SerializeToString())
    plan = {"first": [full], "second": [full]}
    async with raw_steps(plan) as participant, inside(tmp_path, payload_limit_bytes=LIMIT_BYTES) as coordinator:
        await coordinator.announce("raw", participant.address)
        client = coordinator.client
        note = ScenarioInput(note="n" * (LIMIT_BYTES - 4))
        assert note.ByteSize() == LIMIT_BYTES
        end = await client.run(copying("copying"), note, saga_id="at-it", timeout=BOUND)
        assert end == Committed("at-it", ScenarioOutput(effect_id="x" * most))
        assert (await client.get("at-it")).input.Unpack(note)

        too_much = AnyMessage()
        too_much.Pack(ScenarioInput(note="n" * (LIMIT_BYTES - 3)))
        known = (await client.get("at-it")).definition_name
        start = pb.StartSagaRequest(saga_id="beyond", definition_name=known, input=too_much)
        assert (await refused(coordinator.sagas.StartSaga(start))).paths == ("input",)

        participant.plan["first/action"] = [grown]
        wide = Saga("wide", input=ScenarioInput)
        first = wide.step("first", Do(name="n"))
        first.compensated_by(Undo(effect_id="e", name="first"))
        # One byte of the request is the amount's, which the response has no room for.
        for name in ("second", "beside"):
            step = wide.step(name, Do(name=first.response.effect_id, amount=7), after=(first,), retry=SHORT)
            step.compensated_by(Undo(name="s"), by_key=True)
        wide.step("small", Do(name="n"), after=(first,)).compensated_by(Undo(name="s"), by_key=True)
        calls = len(participant.calls("second/action"))
        end_of_wide = await client.run(wide, ScenarioInput(), saga_id="grows", timeout=BOUND)
        assert isinstance(end_of_wide, Compensated)
        assert f"the limit is {LIMIT_BYTES}" in end_of_wide.failure.message
        assert len(participant.calls("second/action")) == calls
        assert not participant.calls("beside/action") + participant.calls("small/action")

        participant.plan["first/action"] = [over]
        refusing = await client.run(
            steps("first", retry=SHORT, by_key=True), ScenarioInput(), saga_id="r", timeout=BOUND
        )
        assert isinstance(refusing, Compensated)
        assert [saga.saga_id async for saga in client.list()] == ["r", "grows", "at-it"]


async def test_every_list_has_the_same_limits(tmp_path: Path) -> None:
    """Pages hold 100 unless asked for otherwise and 1,000 at most; anything else is refused with its path."""
    async with inside(tmp_path) as coordinator:
        desk = operator_service_pb2_grpc.OperatorServiceStub(coordinator.channel)
        sagas, registry = coordinator.sagas, coordinator.registry
        # Any: every list has its own request.
        lists: list[tuple[Any, Any]] = [
            (sagas.ListSagas, pb.ListSagasRequest),
            (sagas.ListSagaDefinitions, pb.ListSagaDefinitionsRequest),
            (desk.ListDeadLetters, operator_service_pb2.ListDeadLettersRequest),
            (desk.ListAuditEntries, operator_service_pb2.ListAuditEntriesRequest),
            (desk.ListNodes, operator_service_pb2.ListNodesRequest),
            (registry.ListParticipants, registry_service_pb2.ListParticipantsRequest),
        ]
        for ask, request in lists:
            for size in (-1, 1_001, 2**31 - 1):
                assert (await refused(ask(request(page_size=size)))).paths == ("page_size",)
            assert (await refused(ask(request(page_token="\0nonsense")))).paths == ("page_token",)
            for size in (0, 1, 1_000):
                await ask(request(page_size=size))


async def test_labels_at_the_limit(tmp_path: Path) -> None:
    """16 labels of the longest keys and values are kept, and the saga is found by each."""
    labels = {f"k{number:02d}{'x' * 60}": "ü" * 256 for number in range(16)}
    async with raw_steps() as participant, inside(tmp_path) as coordinator:
        await coordinator.announce("raw", participant.address)
        await coordinator.client.run(steps("a"), ScenarioInput(), saga_id="s", labels=labels)
        assert (await coordinator.client.get("s")).labels == labels
        for key, value in labels.items():
            found = await coordinator.sagas.ListSagas(pb.ListSagasRequest(labels={key: value}))
            assert [saga.saga_id for saga in found.sagas] == ["s"]


async def test_sixty_four_steps(tmp_path: Path) -> None:
    """The longest saga runs to its end, and its last step's refusal undoes all others, newest first (S5)."""
    names = [f"s{number:02d}" for number in range(63)]
    refusal = {"no": [Reply(code=grpc.StatusCode.FAILED_PRECONDITION, text="no")]}
    async with raw_steps(refusal) as participant, inside(tmp_path) as coordinator:
        await coordinator.announce("raw", participant.address)
        saga = Saga("longest", input=ScenarioInput)
        for name in (*names, "no"):
            saga.step(name, Do(name=name)).compensated_by(Undo(name=name), by_key=True)
        assert isinstance(await coordinator.client.run(saga, ScenarioInput(), timeout=BOUND), Compensated)
        undone = [call.metadata["amends-step"] for call in participant.seen if call.method == "Undo"]
    assert undone == list(reversed(names))


async def test_odd_deadlines_of_clients(tmp_path: Path) -> None:
    """S11: over already, no time at all, a thousand years: each call is answered or ends, and a start that was not
    heard of is a saga all the same or none at all.
    """
    async with raw_steps() as participant, inside(tmp_path) as coordinator:
        await coordinator.announce("raw", participant.address)
        await coordinator.client.run(steps("a"), ScenarioInput(), saga_id="first")
        known = await coordinator.client.get("first")
        timeouts_s = (-1.0, 0.0, 1e-6, 1e-3, 1e8, float(2**62))  # gRPC itself takes the last one for none at all
        codes = [
            await code_of(coordinator, replaced(f"s-{number}", known), timeout_s)
            for number, timeout_s in enumerate(timeouts_s)
        ]
        assert set(codes) <= {grpc.StatusCode.OK, grpc.StatusCode.DEADLINE_EXCEEDED}
        assert codes[4] is grpc.StatusCode.OK
        async for saga in coordinator.client.list():
            end = await coordinator.client.handle(steps("a"), saga.saga_id).wait(BOUND)
            assert isinstance(end, Committed)


def replaced(saga_id: str, known: saga_pb2.Saga) -> pb.StartSagaRequest:
    """Starts a saga like one that is known."""
    return pb.StartSagaRequest(saga_id=saga_id, definition_name=known.definition_name, input=known.input)


async def code_of(coordinator: Inside, request: pb.StartSagaRequest, timeout_s: float) -> grpc.StatusCode:
    """How a start with this deadline ends."""
    try:
        await coordinator.sagas.StartSaga(request, timeout=timeout_s)
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK


async def test_a_participants_words_are_escaped_and_bounded_wherever_they_go(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """L2: terminal escapes, NUL, text that runs backwards: in rows, dead letters, failures, lists and the log they are
    plain, at most 2 KiB, and on one line.
    """
    info = AnyMessage()
    info.Pack(error_details_pb2.ErrorInfo(reason=NASTY[:1_000], domain="bank"))
    details = bytes(status_pb2.Status(code=9, details=[info]).SerializeToString())
    no = Reply(code=grpc.StatusCode.FAILED_PRECONDITION, text=NASTY, trailers=(("grpc-status-details-bin", details),))
    async with raw_steps({"no": [no], "undo_a": [no]}) as participant, inside(tmp_path) as coordinator:
        await coordinator.announce("raw", participant.address)
        saga = steps("a", "no", undo_retry=SHORT)
        end = await coordinator.client.run(saga, ScenarioInput(), saga_id="s", timeout=BOUND)
        whole = await coordinator.client.get("s")
        desk = operator_service_pb2_grpc.OperatorServiceStub(coordinator.channel)
        (letter,) = (await desk.ListDeadLetters(operator_service_pb2.ListDeadLettersRequest())).dead_letters
        listed = (await coordinator.sagas.ListSagas(pb.ListSagasRequest())).sagas[0]
    words = [
        whole.failure.message,
        whole.failure.reason,
        listed.failure.message,
        letter.last_error,
        *(intent.last_error for intent in whole.intents if intent.last_error),
        *(each.last_error for each in whole.dead_letters),
    ]
    assert len(words) >= 7
    for text in words:
        assert "declined" in text
        assert text.isprintable()
        assert len(text.encode()) <= TEXT_LIMIT_BYTES
    assert not isinstance(end, Committed)
    logged = "".join(capsys.readouterr())
    assert "dead letter opened" in logged
    assert "\\x1b[31m" in logged
    assert not set(logged) & {"\0", "\r", "\u202e"}
    assert "\x1b[31m" not in logged
