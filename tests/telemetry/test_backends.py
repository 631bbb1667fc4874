"""A telemetry backend that hangs, refuses or is absent changes nothing about sagas and delays no shutdown."""

from __future__ import annotations

import asyncio
import threading
import time
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from amends_coordinator.settings import SettingsError
from amends_coordinator.system import SystemClock
from amends_coordinator.telemetry.exports import Exports, ExportSettings
from scenario.v1.scenario_pb2 import ScenarioInput
from tests.scenarios.inside import inside
from tests.scenarios.raw import raw_steps
from tests.scenarios.sagas import steps
from tests.telemetry.backends import absent, hangs, refuses
from tests.telemetry.receiver import receiver
from tests.unit.grpc_api.samples import compiled_errand, failed_saga
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.scenarios.inside import Inside
    from tests.telemetry.backends import Backend

pytestmark = pytest.mark.telemetry

BOUND = timedelta(seconds=60)
SAGAS = 150
SAGAS_LEFT = 1_000
"""Their spans are some batches, each of which waits for its own bound at a backend that hangs."""

STOP_BOUND_S = 5.0
"""Fivefold: what is promised is a second."""


async def sagas_per_s(coordinator: Inside) -> float:
    """Runs sagas, 50 at once, and answers how many end in a second."""
    saga = steps("a", "b")
    begin_s = time.monotonic()
    for round_number in range(SAGAS // 50):
        runs = (
            coordinator.client.run(saga, ScenarioInput(amount=1), saga_id=f"s-{round_number}-{number}", timeout=BOUND)
            for number in range(50)
        )
        await asyncio.gather(*runs)
    return SAGAS / (time.monotonic() - begin_s)


async def speed_and_stop(data: Path, endpoint: str) -> tuple[float, float]:
    """Sagas per second with a backend, and how long the coordinator took to stop, in seconds."""
    async with raw_steps() as participant:
        async with inside(data, otlp_endpoint=endpoint, metrics_interval_s=0.2) as coordinator:
            await coordinator.announce("steps", participant.address)
            await coordinator.client.run(steps("a", "b"), ScenarioInput(amount=1), saga_id="warm", timeout=BOUND)
            speed = await sagas_per_s(coordinator)
            begin_s = time.monotonic()
        return speed, time.monotonic() - begin_s


def made(folder: Path) -> Path:
    """The folder, which is there now."""
    folder.mkdir()
    return folder


@pytest.mark.parametrize("backend", [hangs, refuses, absent])
async def test_a_bad_backend_costs_no_speed_and_delays_no_stop(backend: Backend, tmp_path: Path) -> None:
    """Sagas go as fast as with a good backend (loosely: the benchmark says how fast), and a stop waits a second."""
    async with receiver() as good:
        with_good, _ = await speed_and_stop(made(tmp_path / "good"), f"http://{good.address}")
    async with backend() as endpoint:
        with_bad, stop_s = await speed_and_stop(made(tmp_path / "bad"), endpoint)
    assert with_bad > with_good / 3, f"{with_bad:.0f} sagas/s beside {with_good:.0f}"
    assert stop_s < STOP_BOUND_S


async def test_an_endpoint_that_is_no_url_is_a_sentence(tmp_path: Path) -> None:
    """A start that can't be is refused with what to change, not with a traceback."""
    with pytest.raises(SettingsError, match="AMENDS_OTLP_ENDPOINT"):
        async with inside(made(tmp_path / "none"), otlp_endpoint="http://[nowhere"):
            pass


def exporting() -> list[threading.Thread]:
    """The threads of OpenTelemetry that are there."""
    return [thread for thread in threading.enumerate() if thread.name.startswith("Otel")]


async def test_nothing_of_the_exporters_goes_on_once_they_are_closed() -> None:
    """What hangs at a stop is cut off: a process whose connection is still being made would wait for it at its end."""
    saga = failed_saga(compiled_errand()).saga
    async with hangs() as endpoint:
        exports = Exports(ExportSettings(otlp_endpoint=endpoint), clock=SystemClock(), service_instance="test")
        assert exports.traces is not None
        for _ in range(SAGAS_LEFT):
            exports.traces.emit(saga)
        await asyncio.to_thread(exports.close)
        await eventually(lambda: not exporting(), what="the exporters' end", bound_s=4)
