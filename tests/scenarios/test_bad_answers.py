"""Participants that answer badly: whatever they send, each call has a defined outcome, and each saga its end."""

from __future__ import annotations

from contextlib import AsyncExitStack
from datetime import timedelta
from typing import TYPE_CHECKING

import grpc
import pytest
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration

# googleapis-common-protos ships no marker for mypy.
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]  # ships no types

from amends import Committed, Compensated, Retry, Saga
from scenario.v1.scenario_pb2 import DoResponse, ScenarioInput
from tests.scenarios.frames import Wire, message, speak_another_language, tcp_server, wire_server
from tests.scenarios.inside import inside
from tests.scenarios.one_step import BOUND, SHORT, SOON, ends, one_step, outcomes, short
from tests.scenarios.raw import Reply, raw_steps
from tests.scenarios.sagas import Do, Undo

if TYPE_CHECKING:
    from pathlib import Path

    from google.protobuf.message import Message

pytestmark = pytest.mark.scenario

Code = grpc.StatusCode
GOOD = DoResponse(effect_id="e-1", name="a").SerializeToString()


def packed(*details: Message) -> bytes:
    """A status with these details, as the trailer `grpc-status-details-bin` has it."""
    status = status_pb2.Status(code=9)
    for detail in details:
        anything = AnyMessage()
        anything.Pack(detail)
        status.details.append(anything)
    return bytes(status.SerializeToString())


async def test_bytes_that_are_no_answer(tmp_path: Path) -> None:
    """S4: bytes that don't parse, too many of them, or broken text prove nothing; odd values that parse are kept."""
    garbage = {
        "garbage": Reply(body=b"\xff\xff\xff\xff garbage"),
        "broken_text": Reply(body=b"\x0a\x02\xff\xfe"),
        "five_mebibytes": Reply(body=DoResponse(effect_id="x" * (5 << 20)).SerializeToString()),
        "just_over": Reply(body=DoResponse(effect_id="x" * (1 << 20)).SerializeToString()),
    }
    odd = {
        "nothing": Reply(nothing=True),  # gRPC sends an empty message, which is a response with defaults
        "unknown_fields": Reply(body=GOOD + b"\xf8\x3f\x07"),
        "nul": Reply(body=DoResponse(effect_id="a\0b\x1b[31m").SerializeToString()),
        "large": Reply(body=DoResponse(effect_id="x" * 1_000_000).SerializeToString()),
    }
    plan = {name: [reply] for name, reply in (garbage | odd).items()}
    async with raw_steps(plan) as steps, inside(tmp_path) as coordinator:
        await coordinator.announce("raw", steps.address)
        found = await ends(coordinator, {name: one_step(name) for name in plan})
    assert {short(found[name]) for name in garbage} == {("COMPENSATED", "UNKNOWN", "SUCCEEDED")}
    assert {short(found[name]) for name in odd} == {("COMMITTED", "SUCCEEDED", "")}
    assert found["unknown_fields"].intents[0].response.value == GOOD + b"\xf8\x3f\x07"


async def test_texts_and_details_that_are_broken(tmp_path: Path) -> None:
    """Error texts are kept, cleaned and bounded; details that can't be read change nothing about a clear no (S4)."""
    no = Code.FAILED_PRECONDITION
    details = "grpc-status-details-bin"
    info = error_details_pb2.ErrorInfo(reason="CARD\0DECLINED", domain="bank")
    replies = {
        "hundred_kilobytes": Reply(code=no, text="é" * 50_000),
        "empty_text": Reply(code=no),
        "broken_details": Reply(code=no, trailers=((details, b"\xff\xff\xff"),)),
        "broken_detail": Reply(code=no, trailers=((details, packed(info)[:-3]),)),
        "good_details": Reply(code=no, trailers=((details, packed(info)),)),
        "twice": Reply(code=no, trailers=((details, packed(info)), (details, b"\xff"))),
        "broken_abort": Reply(trailers=(("amends-abort-bin", b"\xff\xfe\0why" + b"x" * 5_000),)),
        "empty_abort": Reply(trailers=(("amends-abort-bin", b""),)),
        "soft_abort": Reply(trailers=(("amends-abort-bin", "zurück".encode()),)),
    }
    plan = {name: [reply] for name, reply in replies.items()}
    async with raw_steps(plan) as steps, inside(tmp_path) as coordinator:
        await coordinator.announce("raw", steps.address)
        found = await ends(coordinator, {name: one_step(name) for name in plan})
    aborts = {name for name in plan if name.endswith("_abort")}
    assert {short(found[name]) for name in aborts} == {("COMPENSATED", "SUCCEEDED", "SUCCEEDED")}
    assert {short(found[name]) for name in plan.keys() - aborts} == {("COMPENSATED", "REJECTED", "")}
    assert found["good_details"].failure.reason == "CARD\\x00DECLINED"
    assert found["soft_abort"].failure.message == "zurück"
    assert found["broken_abort"].failure.message.startswith("��\\x00whyxxx")
    for saga in found.values():
        assert len(saga.failure.message.encode()) <= 2_048
        assert saga.failure.message.isprintable()


@pytest.mark.parametrize(
    ("delay", "longest_s"),
    [
        (Duration(seconds=10**11), 0.3),
        (Duration(seconds=-(10**11)), 0.3),
        (Duration(seconds=9_223_372_036_854_775_807, nanos=2_147_483_647), 0.3),
        (Duration(nanos=-1), 0.3),
    ],
    ids=["huge", "negative", "overflow", "odd"],
)
async def test_retry_info_is_obeyed_within_the_policy(tmp_path: Path, delay: Duration, longest_s: float) -> None:
    """`RetryInfo` moves the next attempt, never beyond the policy's longest delay, and never breaks anything (L1)."""
    info = error_details_pb2.RetryInfo(retry_delay=delay)
    later = Reply(code=Code.UNAVAILABLE, trailers=(("grpc-status-details-bin", packed(info)),))
    retry = Retry(initial_delay=SOON, maximum_delay=timedelta(seconds=longest_s), total_timeout=BOUND)
    saga = Saga("patient", input=ScenarioInput)
    saga.step("a", Do(name="a"), retry=retry).compensated_by(Undo(name="a"))
    async with raw_steps({"a": [later, Reply()]}) as steps, inside(tmp_path) as coordinator:
        await coordinator.announce("raw", steps.address)
        handle = await coordinator.client.start(saga, ScenarioInput())
        assert isinstance(await handle.wait(BOUND), Committed)
        first, second = (await handle.get()).intents[0].attempts
    waited_s = (second.start_time.ToMicroseconds() - first.end_time.ToMicroseconds()) / 1e6
    assert waited_s >= (longest_s if delay.seconds > 0 else 0)
    assert waited_s < 5


async def test_what_no_grpc_library_would_say(tmp_path: Path) -> None:
    """Bytes of HTTP/2 that are broken, cut off or absurd: unknown, unless the code is a clear no; never a traceback."""
    unknown, rejected = ("COMPENSATION_FAILED", "UNKNOWN", "PARKED"), ("COMPENSATED", "REJECTED", "")
    no = (b"grpc-status", b"9")
    html = ((b":status", b"503"), (b"content-type", b"text/html"))
    cases: dict[str, tuple[Wire, tuple[str, str, str]]] = {
        "good": (Wire(body=message(GOOD), trailers=((b"grpc-status", b"0"),)), ("COMMITTED", "SUCCEEDED", "")),
        "code_99": (Wire(trailers=((b"grpc-status", b"99"),)), unknown),
        "no_number": (Wire(trailers=((b"grpc-status", b"abc"),)), unknown),
        "no_status": (Wire(body=message(GOOD), trailers=((b"x", b"y"),)), unknown),
        "no_message": (Wire(trailers=((b"grpc-status", b"0"),)), unknown),
        "cut_off": (Wire(body=message(GOOD, length=90), trailers=((b"grpc-status", b"0"),)), unknown),
        "says_two_gib": (Wire(body=message(GOOD, length=2**31), trailers=((b"grpc-status", b"0"),)), unknown),
        "two_messages": (Wire(body=message(GOOD) * 2, trailers=((b"grpc-status", b"0"),)), unknown),
        "no_base64": (Wire(trailers=(no, (b"grpc-status-details-bin", b"!!!"))), unknown),
        "two_megabytes": (Wire(trailers=(no, (b"grpc-message", b"x" * 2_000_000))), unknown),
        "a_web_page": (Wire(headers=html, body=b"<html>", trailers=((b"x", b"y"),)), unknown),
        "reset": (Wire(headers=None, reset=2), unknown),
        "reset_after_all": (Wire(body=message(GOOD), reset=8), unknown),
        "hangs_up": (Wire(headers=None, hang_up=True), unknown),
        "hangs_up_inside": (Wire(body=message(GOOD)[:7], hang_up=True), unknown),
        "silence": (Wire(headers=None), unknown),
        "broken_text": (Wire(trailers=(no, (b"grpc-message", b"%FF%FE broken"))), rejected),
        "raw_text": (Wire(trailers=(no, (b"grpc-message", b"\xff\xfe broken"))), rejected),
        "half_encoded": (Wire(trailers=(no, (b"grpc-message", b"100% %zz %0"))), rejected),
        "odd_trailer": (Wire(trailers=(no, (b"amends-sealed", b"\xff"), (b"amends-executed", b"\xfe"))), rejected),
        "not_found": (Wire(headers=((b":status", b"404"),)), rejected),
    }
    async with AsyncExitStack() as stack:
        coordinator = await stack.enter_async_context(inside(tmp_path))
        for name, (wire, _) in cases.items():
            address = await stack.enter_async_context(wire_server(wire))
            await coordinator.announce(name.replace("_", "-"), address)
        sagas = {name: one_step(name, participant=name.replace("_", "-")) for name in cases}
        found = await ends(coordinator, sagas)
    assert {name: short(saga) for name, saga in found.items()} == {name: want for name, (_, want) in cases.items()}


async def test_a_port_where_something_else_listens(tmp_path: Path) -> None:
    """A service that isn't gRPC at the announced address: nothing is sent, the saga's timeout bounds it, nothing is
    parked (L1).
    """
    saga: Saga[ScenarioInput, None] = Saga("astray", input=ScenarioInput, timeout=timedelta(seconds=1))
    saga.step("a", Do(name="a"), retry=SHORT).compensated_by(Undo(name="a"))
    async with tcp_server(speak_another_language) as address, inside(tmp_path) as coordinator:
        await coordinator.announce("raw", address)
        end = await (await coordinator.client.start(saga, ScenarioInput(), saga_id="s")).wait(BOUND)
        found = await coordinator.client.get("s")
    assert isinstance(end, Compensated)
    assert outcomes(found) == {"NOT_SENT"}
    assert found.failure.reason == "TIMED_OUT"
    assert not found.dead_letters
