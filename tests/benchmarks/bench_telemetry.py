"""`make bench-telemetry`: what telemetry costs, and what a backend costs that takes nothing.

Five coordinators stand side by side, each with a SQLite ledger of its own and the same three participants: one without
telemetry, one that exports to a real receiver in this process, and three whose backend hangs, refuses or is absent.
In every round each has its turn, in an order that rotates, and ratios are medians over rounds, because machines are
shared and noisy. 1 % of the traces are sampled; metrics are sent as often as by default.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import grpc

from amends import SagaClient
from amends.v1.registry_service_pb2_grpc import RegistryServiceStub
from tests.benchmarks.cpu import usage
from tests.benchmarks.load import OneOrder, closed_loop, order_saga, through_sagas
from tests.benchmarks.scratch import scratch
from tests.scenarios.inside import announcement
from tests.scenarios.processes import Process, coordinator
from tests.telemetry.backends import absent, hangs, refuses
from tests.telemetry.receiver import receiver

PARTICIPANTS: Sequence[str] = ("first", "second", "third")
WITHOUT, GOOD = "without", "good"


@asynccontextmanager
async def nowhere() -> AsyncGenerator[str]:
    """No endpoint: nothing is exported."""
    yield ""


@asynccontextmanager
async def good() -> AsyncGenerator[str]:
    """A receiver that takes everything."""
    async with receiver() as taking:
        yield f"http://{taking.address}"


BACKENDS: Mapping[str, Callable[[], AbstractAsyncContextManager[str]]] = {
    WITHOUT: nowhere,
    GOOD: good,
    "hangs": hangs,
    "refuses": refuses,
    "absent": absent,
}


@dataclass(slots=True)
class Figures:
    """What was measured with one backend: sagas per second in each turn, and how long each start took to stop."""

    per_second: list[float] = field(default_factory=list[float])
    cpu_us: list[float] = field(default_factory=list[float])
    stop_s: list[float] = field(default_factory=list[float])


Measured = Mapping[str, Figures]


async def measure(*, kinds: Sequence[str], in_flight: int, seconds: float, rounds: int, starts: int) -> Measured:
    """All rounds, a number of them with each start of the processes."""
    measured = {kind: Figures() for kind in kinds}
    for number in range(starts):
        with tempfile.TemporaryDirectory(prefix="bench-", dir=scratch()) as folder:
            await _one_start(Path(folder), measured, in_flight=in_flight, seconds=seconds, rounds=rounds)
        sys.stderr.write(f"start {number + 1} of {starts} is done\n")
    return measured


async def _one_start(data: Path, measured: Measured, *, in_flight: int, seconds: float, rounds: int) -> None:
    async with AsyncExitStack() as stack:
        started = await asyncio.gather(*(_started(stack, data, kind) for kind in measured))
        processes = dict(zip(measured, started, strict=True))
        serving = await asyncio.gather(*(_participant(stack, data, name, started[0].address) for name in PARTICIPANTS))
        addresses = dict(zip(PARTICIPANTS, serving, strict=True))
        orders = {kind: await _orders(stack, process, addresses) for kind, process in processes.items()}
        for kind in measured:
            await closed_loop(orders[kind], in_flight=in_flight, seconds=min(1.0, seconds))
        for number in range(rounds):
            turn = number % len(orders)
            for kind in (*list(orders)[turn:], *list(orders)[:turn]):
                await _turn(measured[kind], processes[kind], orders[kind], in_flight=in_flight, seconds=seconds)
        for kind, process in processes.items():
            begin_s = time.monotonic()
            await process.stop()
            measured[kind].stop_s.append(time.monotonic() - begin_s)


async def _turn(figures: Figures, process: Process, one: OneOrder, *, in_flight: int, seconds: float) -> None:
    begin = usage(process.pid)
    done = await closed_loop(one, in_flight=in_flight, seconds=seconds)
    used = usage(process.pid).minus(begin)
    figures.per_second.append(done.per_second)
    figures.cpu_us.append((used.loop_s + used.other_threads_s) / done.count * 1e6)


async def _started(stack: AsyncExitStack, data: Path, kind: str) -> Process:
    """A coordinator with its backend."""
    folder = data / kind
    folder.mkdir()
    process = coordinator(
        folder,
        AMENDS_LOG_LEVEL="error",
        AMENDS_SWEEP_INTERVAL_S="1",
        AMENDS_PARTICIPANT_LEASE_S="3600",
        AMENDS_OTLP_ENDPOINT=await stack.enter_async_context(BACKENDS[kind]()),
        AMENDS_TRACE_RATIO="0.01",
    )
    stack.push_async_callback(process.stop)
    await process.start()
    return process


async def _participant(stack: AsyncExitStack, data: Path, name: str, coordinator_address: str) -> str:
    arguments = ["tests.benchmarks.participant", name, "--coordinator", coordinator_address]
    process = Process(arguments, {}, data / f"{name}.log")
    stack.push_async_callback(process.stop)
    await process.start()
    return process.address


async def _orders(stack: AsyncExitStack, process: Process, addresses: Mapping[str, str]) -> OneOrder:
    """One order at a coordinator, which is told of the participants first."""
    channel = await stack.enter_async_context(grpc.aio.insecure_channel(process.address))
    for name, address in addresses.items():
        await RegistryServiceStub(channel).RegisterParticipant(announcement(name, address, instance_id="bench"))
    client = await stack.enter_async_context(SagaClient(process.address))
    return through_sagas(client, order_saga(PARTICIPANTS))


def report(measured: Measured) -> Iterator[str]:
    """The `key=value` lines."""
    for kind, figures in measured.items():
        yield f"sagas_per_s_{kind}={statistics.median(figures.per_second):.0f}"
        yield f"cpu_us_per_saga_{kind}={statistics.median(figures.cpu_us):.0f}"
        yield f"stop_s_{kind}={statistics.median(figures.stop_s):.2f}"
    without, with_good = measured[WITHOUT], measured[GOOD]
    bad = [figures for kind, figures in measured.items() if kind not in {WITHOUT, GOOD}]
    delays = [statistics.median(each.stop_s) - statistics.median(without.stop_s) for each in bad]
    yield f"telemetry_stop_delay_worst_s={max(delays):.2f}"
    yield f"telemetry_cost_cpu={_ratio(with_good.cpu_us, without.cpu_us) - 1:.3f}"
    yield f"telemetry_cost={1 - _ratio(with_good.per_second, without.per_second):.3f}"
    yield f"telemetry_bad_backend_worst={min(_ratio(each.per_second, with_good.per_second) for each in bad):.3f}"


def _ratio(these: Sequence[float], those: Sequence[float]) -> float:
    """The median of the rounds' own ratios."""
    return statistics.median(this / that for this, that in zip(these, those, strict=True))


def main() -> None:
    """Read the arguments, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--in-flight", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=3.0, help="length of each turn")
    parser.add_argument("--rounds", type=int, default=5, help="rounds with each start of the processes")
    parser.add_argument("--starts", type=int, default=3, help="how often the processes are started anew")
    given = parser.parse_args()
    measuring = measure(
        kinds=tuple(BACKENDS),
        in_flight=given.in_flight,
        seconds=given.seconds,
        rounds=given.rounds,
        starts=given.starts,
    )
    for line in report(asyncio.run(measuring)):
        print(line)


if __name__ == "__main__":
    main()
