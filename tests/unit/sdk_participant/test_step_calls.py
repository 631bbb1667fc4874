"""How a call goes, without a server: what a handler returned and nothing can be made bytes of."""

from __future__ import annotations

import logging
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any

import grpc
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format
from google.protobuf.message import Message

from amends.participant.arrived_call import Call
from amends.participant.context import StepContext
from amends.participant.guards import Verdict
from amends.participant.in_flight import CallsInFlight
from amends.participant.served_method import ReceivedRequest, ServedMethod
from amends.participant.step_calls import StepCalls
from amends.participant.threads import at_once
from amends.participant.wire import Refusal
from tests.integration.participant.calls import as_step

OLD = """
name: "old.proto" package: "old" syntax: "proto2"
message_type { name: "Ask" }
message_type { name: "Told" field { name: "secret_number" number: 1 label: LABEL_REQUIRED type: TYPE_STRING } }
"""


class Said:
    """The context of a handler that says nothing to it."""

    def time_remaining(self) -> float | None:
        return None

    def code(self) -> object:
        return None

    def details(self) -> str:
        return ""

    def trailing_metadata(self) -> object:
        return ()


class Here:
    """Carries a call out in this thread."""

    def __init__(self) -> None:
        self.context = Said()

    async def wait(self, other: Future[None], step: StepContext) -> None:
        raise AssertionError("there is no other call")

    def run(self, course: Coroutine[Any, Any, Verdict]) -> Coroutine[Any, Any, Verdict]:
        return course


def answer_of(returned: Message, asked: type[Message]) -> Verdict:
    """What a handler that returns this is answered with."""
    method = ServedMethod(
        name="old.Desk/Ask",
        behaviour=lambda request, context: returned,
        plain=True,
        request=asked,
        response=type(returned),
    )
    request = ReceivedRequest(method)
    calls = StepCalls("desk", capacity=0, in_flight=CallsInFlight())
    call = Call(method, dict(as_step()), request, request.read(b""), Here())
    return at_once(calls.answer(call))


def test_a_response_that_cannot_be_sent_keeps_its_text_to_itself(caplog: pytest.LogCaptureFixture) -> None:
    """S4: what was done stands, so nothing is proven; which field is missing is said here only."""
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(text_format.Parse(OLD, descriptor_pb2.FileDescriptorProto()).SerializeToString())
    asked, told = (
        message_factory.GetMessageClass(pool.FindMessageTypeByName(f"old.{name}")) for name in ("Ask", "Told")
    )
    with caplog.at_level(logging.ERROR, "amends.participant"):
        verdict = answer_of(told(), asked)
    assert isinstance(verdict, Refusal)
    assert (verdict.code, "secret_number" in verdict.text) == (grpc.StatusCode.INTERNAL, False)
    assert "secret_number" in str(caplog.records[-1].exc_info)
