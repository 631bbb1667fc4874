"""The page for Prometheus: it says what the ledger says, its port is its own, and a stop gives it back."""

from __future__ import annotations

import socket
from datetime import timedelta
from typing import TYPE_CHECKING

import grpc
import pytest

from amends.v1 import saga_service_pb2
from amends_coordinator.bootstrap import serve
from amends_coordinator.settings import Settings, SettingsError
from scenario.v1.scenario_pb2 import ScenarioInput
from tests.scenarios.inside import inside
from tests.scenarios.raw import raw_steps
from tests.scenarios.sagas import steps
from tests.telemetry.page import Page, free_port, page_at, value
from tests.waiting import pause

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.telemetry

BOUND = timedelta(seconds=60)
RAN = {"definition": "scenario-a", "outcome": "committed"}
START = "amends.v1.SagaService/StartSaga"


def settings(port: int) -> dict[str, object]:
    """A coordinator with a page that is never long out of date."""
    return {"prometheus_port": port, "metrics_interval_s": 0.1, "participant_lease_s": 3_600}


async def page_once(port: int, condition: Callable[[Page], bool]) -> Page:
    """The page, once a condition holds for it; pytest's own timeout bounds it."""
    while not condition(page := await page_at(port)):
        await pause()
    return page


async def test_the_page_says_what_the_ledger_says(tmp_path: Path) -> None:
    """Counters, gauges and histograms stand there under Prometheus's names, those of another start don't."""
    for _ in range(2):  # two coordinators of one process, one after the other, each with its own counts
        port = free_port()
        folder = tmp_path / str(port)
        folder.mkdir()
        async with inside(folder, **settings(port)) as coordinator, raw_steps() as participant:
            await coordinator.announce("steps", participant.address)
            for number in range(3):
                await coordinator.client.run(
                    steps("a"), ScenarioInput(amount=1), saga_id=f"order-{number}", timeout=BOUND
                )
            page = await page_once(port, lambda page: value(page, "amends_saga_ended_total", **RAN) == 3)
            assert value(page, "amends_saga_duration_seconds_count", **RAN) == 3
            assert 0 < value(page, "amends_sweeper_last_pass_age_seconds") < 60
            assert ("amends_dead_letter_open", frozenset()) in await page_once(port, lambda page: len(page) > 0)


async def test_requests_that_end_with_an_error_are_counted(tmp_path: Path) -> None:
    """By method and reason, those that this release doesn't carry out included; methods nobody knows make no series."""
    port = free_port()
    async with inside(tmp_path, **settings(port)) as coordinator:
        unregistered = saga_service_pb2.StartSagaRequest(definition_name="nobody-knows")
        unregistered.input.Pack(ScenarioInput(amount=1))
        for request in (unregistered, unregistered, saga_service_pb2.StartSagaRequest()):
            with pytest.raises(grpc.aio.AioRpcError):
                await coordinator.sagas.StartSaga(request)
        unknown: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = coordinator.channel.unary_unary("/amends.v1.S/Odd")
        with pytest.raises(grpc.aio.AioRpcError):
            await unknown(b"")
        page = await page_at(port)
        counted = {
            tuple(sorted(labels)): count for (name, labels), count in page.items() if name == "amends_api_errors_total"
        }
        assert counted == {
            (("method", START), ("reason", "definition_not_found")): 2,
            (("method", START), ("reason", "invalid_request")): 1,
        }


async def test_a_counter_begins_at_nought(tmp_path: Path) -> None:
    """What has never happened is nought and not absent: an alert on its growth would miss the first time otherwise."""
    port = free_port()
    async with inside(tmp_path, **settings(port)):
        page = await page_at(port)
        for name in ("node_fenced", "ledger_unavailable", "driver_failed", "call_late_answer"):
            assert page[f"amends_{name}_total", frozenset()] == 0


async def test_a_taken_port_is_a_clear_error(tmp_path: Path) -> None:
    """The coordinator doesn't start without the page that was asked for; it says whose port, and which setting."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        given = Settings.load(ledger_url=f"sqlite:///{tmp_path / 'ledger.db'}", port=0, **settings(port))
        with pytest.raises(SettingsError, match=f"127.0.0.1:{port} .*already in use.*choose another AMENDS_PROMETHEUS"):
            await serve(given)


async def test_a_stop_gives_the_port_back(tmp_path: Path) -> None:
    """Nobody answers there any more once the coordinator has stopped."""
    port = free_port()
    async with inside(tmp_path, **settings(port)):
        await page_at(port)
    with socket.create_server(("127.0.0.1", port)):
        pass
