"""The same seed makes the same run, byte for byte, in every process."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[3]

RUN = """\
import sys
from tests.unit.testing.test_same_run import timeline
print(timeline(int(sys.argv[1])))
"""


def timeline(seed: int) -> str:
    """What happens in a run with whatever could make two of them differ: steps side by side whose handlers work in
    threads, back-off with its random part, ids, a killed coordinator, and calls that are delivered twice.
    """
    from amends.testing import run
    from tests.unit.testing.busy_run import busy

    return run(busy, seed=seed)


def in_a_process(seed: int, *, hash_seed: int) -> str:
    """The same in a process of its own, whose sets have another order."""
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(seed)],
        check=True,
        capture_output=True,
        text=True,
        cwd=CHECKOUT,
        env={**os.environ, "PYTHONHASHSEED": str(hash_seed)},
        timeout=timedelta(seconds=60).total_seconds(),
    )
    return done.stdout.rstrip("\n")


def test_the_same_seed_makes_the_same_run() -> None:
    """Here and elsewhere; another seed makes another one."""
    first = timeline(7)
    assert first.count("reply") > 20
    assert timeline(7) == first == in_a_process(7, hash_seed=1)
    assert timeline(8) != first
