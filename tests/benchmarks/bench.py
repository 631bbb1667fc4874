"""`make bench`: the coordinator with unary participants that do nothing, against the same three calls made directly.

Rounds of the two alternate on one machine in one run, over several starts of all processes, and the ratio is the median
of the pairs, because machines are shared and noisy. SQLite with synchronous=FULL, every intent written before its call.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from amends import SagaClient
from tests.benchmarks.cpu import Usage, usage
from tests.benchmarks.load import Measured, OneOrder, called_directly, closed_loop, order_saga, through_sagas
from tests.benchmarks.scratch import scratch
from tests.scenarios.processes import Process, coordinator

NAMES = ("first", "second", "third")


@dataclass(frozen=True, slots=True)
class Round:
    """One pair: the same load directly and through sagas, with what each process used per saga."""

    bare: Measured
    sagas: Measured
    used_bare: dict[str, Usage]
    used: dict[str, Usage]

    @property
    def ratio(self) -> float:
        """Sagas per second against bare orders per second."""
        return self.sagas.per_second / self.bare.per_second

    @property
    def cpu_ratio(self) -> float:
        """Processor time of all processes per bare order against that per saga: says what a busy machine hides."""
        bare = sum(used.loop_s + used.other_threads_s for used in self.used_bare.values()) / self.bare.count
        return bare / (sum(used.loop_s + used.other_threads_s for used in self.used.values()) / self.sagas.count)


class Stage:
    """The coordinator and three participants as processes, and this process as the client."""

    def __init__(self, data: Path) -> None:
        self.coordinator = coordinator(data, AMENDS_LOG_LEVEL="warning")
        self._data = data
        self.participants: list[Process] = []

    async def start(self) -> None:
        """Start all."""
        await self.coordinator.start()
        for name in NAMES:
            arguments = ["tests.benchmarks.participant", name, "--coordinator", self.coordinator.address]
            process = Process(arguments, {}, self._data / f"{name}.log")
            self.participants.append(process)
            await process.start()

    async def stop(self) -> None:
        """Stop whatever runs."""
        for process in (*self.participants, self.coordinator):
            if process.running:
                await process.stop()

    def usages(self) -> dict[str, Usage]:
        """What everybody has used so far."""
        shares = [usage(process.pid) for process in self.participants]
        together = Usage(sum(s.loop_s for s in shares), sum(s.other_threads_s for s in shares))
        return {"coordinator": usage(self.coordinator.pid), "participants": together, "client": usage(os.getpid())}


async def one_round(stage: Stage, bare: OneOrder, sagas: OneOrder, *, in_flight: int, seconds: float) -> Round:
    """One pair of measurements."""
    begin = stage.usages()
    directly = await closed_loop(bare, in_flight=in_flight, seconds=seconds)
    between = stage.usages()
    coordinated = await closed_loop(sagas, in_flight=in_flight, seconds=seconds)
    end = stage.usages()
    return Round(
        directly,
        coordinated,
        {name: between[name].minus(begin[name]) for name in end},
        {name: end[name].minus(between[name]) for name in end},
    )


async def measure(*, in_flight: int, seconds: float, rounds: int, starts: int = 1) -> list[Round]:
    """All rounds, a number of them with each start of the processes: how memory happens to be laid out makes one start
    a few percent faster than the next.
    """
    found: list[Round] = []
    for start in range(starts):
        with tempfile.TemporaryDirectory(prefix="bench-", dir=scratch()) as folder:
            found += await _one_start(Stage(Path(folder)), in_flight=in_flight, seconds=seconds, rounds=rounds)
        _progress(f"start {start + 1} of {starts}: ratios {', '.join(f'{r.ratio:.2f}' for r in found[-rounds:])}")
    return found


async def _one_start(stage: Stage, *, in_flight: int, seconds: float, rounds: int) -> list[Round]:
    """The rounds of one start, after a short one that warms everything up."""
    try:
        await stage.start()
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(SagaClient(stage.coordinator.address))
            sagas = through_sagas(client, order_saga(NAMES))
            bare = await called_directly(stack, [p.address for p in stage.participants], NAMES)
            await one_round(stage, bare, sagas, in_flight=in_flight, seconds=1.0)
            return [await one_round(stage, bare, sagas, in_flight=in_flight, seconds=seconds) for _ in range(rounds)]
    finally:
        await stage.stop()


def report(rounds: list[Round], in_flight: int) -> list[str]:
    """The `key=value` lines."""
    lines = [
        f"bare_per_s_{in_flight}={statistics.median(r.bare.per_second for r in rounds):.0f}",
        f"sagas_per_s_{in_flight}={statistics.median(r.sagas.per_second for r in rounds):.0f}",
        f"saga_p50_ms_{in_flight}={statistics.median(x for r in rounds for x in r.sagas.latencies_s) * 1000:.1f}",
    ]
    for name in rounds[0].used:
        for part in ("loop_s", "other_threads_s"):
            bare = statistics.median(getattr(r.used_bare[name], part) / r.bare.count for r in rounds)
            saga = statistics.median(getattr(r.used[name], part) / r.sagas.count for r in rounds)
            where = f"{name}_{part.removesuffix('_s')}"
            lines += [f"cpu_us_per_bare_order_{where}={bare * 1e6:.0f}", f"cpu_us_per_saga_{where}={saga * 1e6:.0f}"]
    lines.append(f"ratio_cpu_unary_vs_bare_{in_flight}={statistics.median(r.cpu_ratio for r in rounds):.2f}")
    lines.append(f"ratio_unary_vs_bare_{in_flight}={statistics.median(r.ratio for r in rounds):.2f}")
    return lines


def main() -> None:
    """Read the arguments, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--in-flight", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=3.0, help="length of each half of a round")
    parser.add_argument("--rounds", type=int, default=2, help="rounds with each start of the processes")
    parser.add_argument("--starts", type=int, default=4, help="how often the processes are started anew")
    given = parser.parse_args()
    measured = measure(in_flight=given.in_flight, seconds=given.seconds, rounds=given.rounds, starts=given.starts)
    for line in report(asyncio.run(measured), given.in_flight):
        print(line)


def _progress(text: str) -> None:
    sys.stderr.write(f"{text}\n")


if __name__ == "__main__":
    main()
