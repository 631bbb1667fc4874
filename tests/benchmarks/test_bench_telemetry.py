"""The telemetry benchmark's short version: it runs, and what it says is of the right order of magnitude."""

from __future__ import annotations

from tests.benchmarks.bench_telemetry import GOOD, WITHOUT, measure, report

MOST = 0.8
"""Telemetry that took four fifths of the throughput would be a fault; real figures come from `make bench-telemetry`."""


async def test_bench_measures_telemetry() -> None:
    """Speed: with a good backend, and with one that isn't there, sagas go on at the same order of magnitude."""
    measured = await measure(kinds=(WITHOUT, GOOD, "absent"), in_flight=16, seconds=0.5, rounds=1, starts=1)
    lines = dict(line.split("=") for line in report(measured))
    assert float(lines["telemetry_cost"]) < MOST
    assert float(lines["telemetry_bad_backend_worst"]) > 1 - MOST
    assert [*lines][-2:] == ["telemetry_cost", "telemetry_bad_backend_worst"]
