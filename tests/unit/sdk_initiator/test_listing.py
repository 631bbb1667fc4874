"""`SagaClient.list` against a real gRPC server: what it sends, and how it goes from page to page."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any, cast

import pytest
from google.protobuf.json_format import MessageToDict

from amends import DefinitionError, SagaClient
from amends.v1 import saga_pb2
from tests.unit.sdk_initiator.coordinator import TellingCoordinator

State = saga_pb2.Saga


async def test_sagas_are_listed_page_by_page(client: SagaClient, coordinator: TellingCoordinator) -> None:
    """A list of any length is fetched as it is read, filtered by state where asked."""
    for number in range(5):
        state = State.STATE_COMMITTED if number == 2 else State.STATE_RUNNING
        coordinator.sagas[f"trip-{number}"] = saga_pb2.Saga(saga_id=f"trip-{number}", state=state)
    everything = [saga.saga_id async for saga in client.list(page_size=2)]
    assert everything == [f"trip-{number}" for number in range(5)]
    assert coordinator.methods() == ["ListSagas"] * 3
    async for saga in client.list(states=[State.STATE_COMMITTED]):
        assert saga.saga_id == "trip-2"


async def test_every_filter_of_a_list_is_sent(client: SagaClient, coordinator: TellingCoordinator) -> None:
    """Each argument is a field of the request; a time that doesn't say its zone is refused."""
    noon = datetime(2026, 11, 30, 12, tzinfo=timezone(timedelta(hours=1)))
    listed = client.list(
        states=[State.STATE_RUNNING],
        definition="trip",
        definition_version="0123456789abcdef",
        labels={"customer": "ada"},
        attention_required=True,
        unproven=True,
        compensations_owed=True,
        participant="hotels",
        since=noon,
        until=noon + timedelta(hours=1),
        updated_since=noon + timedelta(hours=2),
        updated_until=noon + timedelta(hours=3),
        stalled_for=timedelta(minutes=5),
    )
    assert [saga async for saga in listed] == []
    sent = MessageToDict(coordinator.asked[0].request)
    assert sent == {
        "states": ["STATE_RUNNING"],
        "definitionName": "trip",
        "definitionVersion": "0123456789abcdef",
        "labels": {"customer": "ada"},
        "attentionRequired": True,
        "unproven": True,
        "compensationsOwed": True,
        "participant": "hotels",
        "earliestCreateTime": "2026-11-30T11:00:00Z",
        "latestCreateTime": "2026-11-30T12:00:00Z",
        "earliestUpdateTime": "2026-11-30T13:00:00Z",
        "latestUpdateTime": "2026-11-30T14:00:00Z",
        "stalledFor": "300s",
    }
    for wrong in (noon.replace(tzinfo=None), cast("Any", 5)):
        with pytest.raises(DefinitionError, match=r"until is .*: pass a datetime with its time zone"):
            await anext(client.list(until=wrong))
    with pytest.raises(DefinitionError, match="stalled_for is 5: pass a timedelta"):
        await anext(client.list(stalled_for=cast("Any", 5)))
