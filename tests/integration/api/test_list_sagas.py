"""`ListSagas` over real gRPC: what its filters say, which requests are refused, and how pages end."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import grpc
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from amends.v1 import saga_pb2
from amends.v1 import saga_service_pb2 as pb
from amends_coordinator.grpc_api import saga_list
from scenario.v1 import scenario_pb2
from tests.integration.api.conftest import start_request
from tests.integration.api.refusals import refused
from tests.unit.grpc_api.samples import errand

if TYPE_CHECKING:
    import pytest

    from amends.v1.saga_definition_pb2 import SagaDefinition
    from tests.integration.api.conftest import Served

SECOND_US = 1_000_000


async def listed(served: Served, request: pb.ListSagasRequest) -> list[str]:
    """The ids on the first page."""
    return [saga.saga_id for saga in (await served.sagas.ListSagas(request)).sagas]


async def start(served: Served, saga_id: str, *, name: str = "errand", team: str = "") -> None:
    """Start a saga a second after the one before."""
    served.clock.advance(SECOND_US)
    request = start_request(saga_id, name=name)
    if team:
        request.labels["team"] = team
    await served.sagas.StartSaga(request)


def moment(served: Served, after_s: float = 0) -> Timestamp:
    """The clock's time, or one after it."""
    stamp = Timestamp()
    stamp.FromDatetime(datetime.fromtimestamp(served.clock.now() / 1e6, UTC) + timedelta(seconds=after_s))
    return stamp


async def test_filters_reach_the_ledger(served: Served) -> None:
    """Promise: what a request says of definition, labels, times and progress is what chooses."""
    version = await served.register()
    await served.register("other")
    await start(served, "s-1", team="shop")
    await start(served, "s-2", name="other", team="shop")
    middle = moment(served)
    await start(served, "s-3")
    await served.driving.end("s-3")
    assert await listed(served, pb.ListSagasRequest(definition_name="errand")) == ["s-3", "s-1"]
    both = pb.ListSagasRequest(definition_name="errand", definition_version=version)
    assert await listed(served, both) == ["s-3", "s-1"]
    assert await listed(served, pb.ListSagasRequest(labels={"team": "shop"})) == ["s-2", "s-1"]
    assert await listed(served, pb.ListSagasRequest(earliest_create_time=middle)) == ["s-3", "s-2"]
    assert await listed(served, pb.ListSagasRequest(latest_create_time=middle)) == ["s-2", "s-1"]
    assert await listed(served, pb.ListSagasRequest(latest_update_time=middle)) == ["s-2", "s-1"]
    served.clock.advance(10 * SECOND_US)
    assert await listed(served, pb.ListSagasRequest(stalled_for=Duration(seconds=11))) == ["s-2", "s-1"]
    assert await listed(served, pb.ListSagasRequest(stalled_for=Duration(seconds=12))) == ["s-1"]
    assert await listed(served, pb.ListSagasRequest(attention_required=True)) == []
    assert await listed(served, pb.ListSagasRequest(unproven=True)) == []
    assert await listed(served, pb.ListSagasRequest(compensations_owed=True)) == []


async def register(served: Served, definition: SagaDefinition) -> None:
    """Register a definition a second after the one before."""
    served.clock.advance(SECOND_US)
    await served.sagas.RegisterSagaDefinition(pb.RegisterSagaDefinitionRequest(definition=definition))


async def test_a_participant_finds_what_it_serves(served: Served) -> None:
    """Promise: a saga is found by the participant that its definition names, or that serves its step's service; one
    that is not there, or gone, is found by name all the same.
    """
    named = errand(name="named")
    named.steps[0].participant = "solo"
    await register(served, named)
    await register(served, errand(name="open"))
    changed = errand(name="open")
    changed.timeout.CopyFrom(Duration(seconds=7))
    changed.steps[0].participant = "solo"
    await start(served, "s-1", name="named")
    await start(served, "s-2", name="open")
    by_solo, by_steps = pb.ListSagasRequest(participant="solo"), pb.ListSagasRequest(participant="steps")
    assert await listed(served, by_solo) == ["s-1"]
    assert await listed(served, by_steps) == []
    await served.announce()
    assert await listed(served, by_steps) == ["s-2"]
    await register(served, changed)
    await start(served, "s-3", name="open")
    assert await listed(served, by_steps) == ["s-2"]
    assert await listed(served, by_solo) == ["s-3", "s-1"]


async def test_a_list_tells_how_far_each_saga_is(served: Served) -> None:
    """Promise: steps, those that are done, when it got on and how often it was written are in lists, too."""
    await served.register()
    await start(served, "s-1")
    begun = moment(served)
    served.clock.advance(5 * SECOND_US)
    await served.driving.end("s-1")
    await start(served, "s-2")
    running, ended = (await served.sagas.ListSagas(pb.ListSagasRequest())).sagas
    assert (running.step_count, running.succeeded_step_count, running.write_count) == (1, 0, 1)
    assert (ended.step_count, ended.succeeded_step_count, ended.write_count) == (1, 1, 2)
    assert ended.progress_time == begun


async def test_every_fault_of_a_filter_is_told(served: Served) -> None:
    """Promise: what can let no saga through, or is none, is refused with its path, all at once."""
    request = pb.ListSagasRequest(
        definition_version="0123456789abcdef",
        labels={"Team": "a", "team": "x" * 257},
        participant="No Body",
        earliest_create_time=moment(served, 1),
        latest_create_time=moment(served),
        earliest_update_time=Timestamp(seconds=-(10**12)),
        latest_update_time=Timestamp(nanos=-1),
        stalled_for=Duration(seconds=-1),
    )
    refusal = await refused(served.sagas.ListSagas(request))
    assert refusal.code is grpc.StatusCode.INVALID_ARGUMENT
    assert sorted(refusal.paths) == [
        "definition_version",
        "earliest_create_time",
        "earliest_update_time",
        "labels['Team']",
        "labels['team']",
        "latest_update_time",
        "participant",
        "stalled_for",
    ]


async def test_a_token_belongs_to_its_filters(served: Served) -> None:
    """Promise: a page token of a list with other filters is refused; the size of pages may change."""
    await served.register()
    for number in range(3):
        await start(served, f"s-{number}")
    states = [saga_pb2.Saga.STATE_RUNNING, saga_pb2.Saga.STATE_COMMITTED]
    first = await served.sagas.ListSagas(pb.ListSagasRequest(page_size=1, states=states))
    again = pb.ListSagasRequest(page_size=5, states=states[::-1], page_token=first.next_page_token)
    assert await listed(served, again) == ["s-1", "s-0"]
    other = pb.ListSagasRequest(definition_name="errand", page_token=first.next_page_token)
    refusal = await refused(served.sagas.ListSagas(other))
    assert (refusal.code, refusal.paths) == (grpc.StatusCode.INVALID_ARGUMENT, ("page_token",))


async def test_a_page_fits_into_a_message(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Promise: sagas with big inputs come in more pages, because clients take 4 MiB at once."""
    monkeypatch.setattr(saga_list, "PAGE_LIMIT_BYTES", 40_000)
    monkeypatch.setattr(saga_list, "PIECE", 3)
    await served.register()
    for number in range(7):
        big = start_request(f"s-{number}", payload=scenario_pb2.DoRequest(name="x" * 15_000))
        served.clock.advance(SECOND_US)
        await served.sagas.StartSaga(big)
    pages: list[list[str]] = []
    request = pb.ListSagasRequest(page_size=5)
    while not pages or request.page_token:
        page = await served.sagas.ListSagas(request)
        pages.append([saga.saga_id for saga in page.sagas])
        request.page_token = page.next_page_token
    assert pages == [["s-6", "s-5", "s-4"], ["s-3", "s-2", "s-1"], ["s-0"]]
