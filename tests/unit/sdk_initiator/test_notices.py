"""What a program that waits is told: that nobody answers, and why its saga can't get on; once, and not more."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta

import grpc
import pytest

from amends import notices
from amends.errors import CoordinatorUnavailableError
from amends.notices import Notices, trouble
from amends.v1 import saga_pb2
from tests.waiting import eventually

SILENT = CoordinatorUnavailableError(
    "starting saga 's'",
    reason="NO_COORDINATOR",
    status_code=grpc.StatusCode.UNAVAILABLE,
    retry_delay=timedelta(seconds=1),
)


def saga(said: str = "", state: saga_pb2.Intent.State.ValueType = saga_pb2.Intent.STATE_PENDING) -> saga_pb2.Saga:
    """A saga that calls its step for the third time."""
    intent = saga_pb2.Intent(step="hold", state=state, attempt_count=3, last_error=said)
    return saga_pb2.Saga(saga_id="s", intents=[intent])


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> pytest.LogCaptureFixture:
    """The log, and a client that looks soon."""
    monkeypatch.setattr(notices, "FIRST_LOOK_S", 0.01)
    monkeypatch.setattr(notices, "NEXT_LOOK_S", 0.01)
    caplog.set_level(logging.INFO, "amends.client")
    return caplog


async def test_why_a_saga_can_not_get_on_is_told_once(told: pytest.LogCaptureFixture) -> None:
    """As long as it is the same; a wait that ends soon asks nobody."""
    looks: list[str] = []

    async def look(saga_id: str) -> saga_pb2.Saga:
        looks.append(saga_id)
        return saga("nobody serves it" if len(looks) < 5 else "the handler returned None")

    noticing = Notices(look)
    with noticing.about("s"):
        pass
    with noticing.about("s"):
        await eventually(lambda: len(looks) > 6, what="it looks now and then")
    assert [record.message.partition(":")[2].partition(" (")[0] for record in told.records] == [
        " nobody serves it",
        " the handler returned None",
    ]
    assert "`amends saga get s`" in told.text
    seen = len(looks)
    await asyncio.sleep(0)
    assert len(looks) == seen


async def test_a_saga_that_hangs_is_looked_at_again_soon(
    told: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the first look a call that hangs has no error yet; the second isn't as late as those after something told."""
    monkeypatch.setattr(notices, "NEXT_LOOK_S", 3600.0)
    looks: list[str] = []

    async def look(saga_id: str) -> saga_pb2.Saga:
        looks.append(saga_id)
        return saga("no answer within 5 s" if len(looks) == 3 else "")

    with Notices(look).about("s"):
        await eventually(lambda: bool(told.records), what="it is told")
    assert len(looks) == 3


async def test_silence_is_told_once_until_somebody_answers(told: pytest.LogCaptureFixture) -> None:
    """An outage floods no log, and while it lasts nobody is asked about sagas."""

    async def look(_: str) -> saga_pb2.Saga:
        raise AssertionError("nobody answers")

    noticing, waited = Notices(look), asyncio.Event()
    for _ in range(3):
        noticing.unheard(SILENT)
    with noticing.about("s"):
        asyncio.get_running_loop().call_later(0.05, waited.set)
        await waited.wait()
    noticing.heard()
    noticing.unheard(SILENT)
    assert [record.message for record in told.records] == ["starting saga 's'; trying again"] * 2


def test_trouble_is_a_call_that_said_something_and_is_tried_again() -> None:
    """A saga that only takes its time is none, nor one whose calls ended."""
    assert not trouble(saga())
    assert not trouble(saga("no", saga_pb2.Intent.STATE_REJECTED))
    assert trouble(saga("no")).startswith("saga 's' can't get past step 'hold' yet: no (attempt 3); ")
