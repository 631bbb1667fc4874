"""The barrier benchmark's short version: it runs, and what it says is of the right order of magnitude."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks.bench_barrier import WARM_UP, measure, report

MOST = 20
"""A barrier that cost twenty times the work itself would be a fault; real figures come from `make bench-barrier`."""


@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
async def test_bench_measures_the_barrier(database: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Speed: the call with the barrier is of the order of the call without."""
    url = f"sqlite:///{tmp_path / 'bench.sqlite3'}"
    if database == "postgresql":
        postgres_url: str = request.getfixturevalue("postgres_database")
        url = postgres_url.replace("postgresql:", "postgresql+psycopg:")
    lines = dict(line.split("=") for line in report(database, *await measure(url, calls=WARM_UP + 10)))
    assert 0 < float(lines[f"{database}_with_barrier_us"]) < MOST * float(lines[f"{database}_without_barrier_us"])
    assert f"{database}_barrier_cost_us" in lines
