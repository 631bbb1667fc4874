"""The benchmark's short version: it runs, and what it says is of the right order of magnitude."""

from __future__ import annotations

from tests.benchmarks.bench import measure, report

MAGNITUDE = 0.05
"""A saga that cost twenty times its calls would be a fault on any machine; real figures come from `make bench`."""


async def test_bench_measures_sagas_against_bare_calls() -> None:
    """Speed: a saga's throughput is of the order of its calls', and every process' time is accounted for."""
    rounds = await measure(in_flight=16, seconds=1.0, rounds=1)
    lines = dict(line.split("=") for line in report(rounds, 16))
    assert float(lines["ratio_unary_vs_bare_16"]) > MAGNITUDE
    assert float(lines["ratio_cpu_unary_vs_bare_16"]) > MAGNITUDE
    parts = ("coordinator", "participants", "client")
    assert all(float(lines[f"cpu_us_per_saga_{part}_loop"]) > 0 for part in parts)
