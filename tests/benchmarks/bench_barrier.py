"""`make bench-barrier`: one call of a handler that writes one row, below the barrier and without it.

Both handlers are served by the same server in this process and called over gRPC, one call at a time, by turns, so that
a machine that gets slower meanwhile is slower for both. SQLite writes each commit to the disk (`synchronous=FULL`); the
PostgreSQL is one of our own on loopback that doesn't (`fsync = off`), so there the barrier's statements show most.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import statistics
import sys
import tempfile
import time
from collections.abc import Generator, Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from pathlib import Path

import grpc
from sqlalchemy import create_engine
from sqlalchemy.orm import sessionmaker

from amends import ParticipantServer
from tests.benchmarks.scratch import scratch
from tests.conformance.barrier.stage import (
    NO_COORDINATOR,
    SERVICE,
    AsyncBarred,
    AsyncContext,
    Handlers,
    Step,
    make_tables,
    rig_at,
    write_effect,
)
from tests.postgres import NOT_TESTED, PostgresServer, find_package
from timeline.v1 import timeline_pb2 as pb

CALLS = 500
WARM_UP = 20


class Unbarred(AsyncBarred):
    """The same work in an ordinary transaction."""

    async def Do(self, request: pb.DoRequest, context: AsyncContext) -> pb.DoResponse:
        async with self.sessions.begin() as session:
            return await session.run_sync(write_effect)


async def measure(url: str, *, calls: int) -> tuple[list[float], list[float]]:
    """Seconds of each call without and with the barrier, on a database without tables."""
    engine = create_engine(url)
    make_tables(engine)
    engine.dispose()
    async with AsyncExitStack() as stack:
        rig = await stack.enter_async_context(rig_at(url, plain=False))
        assert not isinstance(rig.sessions, sessionmaker)
        channels: list[grpc.aio.Channel] = []
        for servicer in (Unbarred(Handlers(), rig.sessions), AsyncBarred(Handlers(), rig.sessions)):
            server = ParticipantServer("barred", coordinator=NO_COORDINATOR, stop_grace_s=0)
            server.add(servicer)
            await stack.enter_async_context(server)
            channel = grpc.aio.insecure_channel(f"127.0.0.1:{server.port}")
            channels.append(await stack.enter_async_context(channel))
        took = [(await _call(channels[0], number), await _call(channels[1], number)) for number in range(calls)]
    return [without for without, _ in took[WARM_UP:]], [below for _, below in took[WARM_UP:]]


def report(database: str, without: list[float], below: list[float]) -> Iterator[str]:
    """The lines for one database; the barrier's cost is the median of the differences between neighbours."""
    costs = [below_s - without_s for without_s, below_s in zip(without, below, strict=True)]
    yield f"{database}_without_barrier_us={statistics.median(without) * 1e6:.0f}"
    yield f"{database}_with_barrier_us={statistics.median(below) * 1e6:.0f}"
    yield f"{database}_barrier_cost_us={statistics.median(costs) * 1e6:.0f}"


@contextmanager
def databases() -> Generator[dict[str, str]]:
    """The URL of each database that can be had here."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(dir=scratch()))
        urls = {"sqlite": f"sqlite:///{Path(folder) / 'bench.sqlite3'}"}
        package = find_package()
        if package is None:
            sys.stderr.write(f"{NOT_TESTED}\n")
        else:
            server = PostgresServer(package)
            stack.callback(server.stop)
            urls["postgresql"] = server.url(server.create_database()).replace("postgresql:", "postgresql+psycopg:")
        yield urls


async def _call(channel: grpc.aio.Channel, number: int) -> float:
    """Seconds of one call."""
    stub: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(f"/{SERVICE}/Do")
    metadata = Step(saga_id=f"s-{number}").metadata("action")
    begin = time.perf_counter()
    await stub(pb.DoRequest(name="a").SerializeToString(), metadata=metadata, timeout=30)
    return time.perf_counter() - begin


def main() -> None:
    """Read the arguments, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=CALLS, help="calls of each kind on each database")
    given = parser.parse_args()
    logging.disable(logging.WARNING)  # there is no coordinator, which the participants would say
    with databases() as urls:
        for database, url in urls.items():
            for line in report(database, *asyncio.run(measure(url, calls=given.calls))):
                print(line)


if __name__ == "__main__":
    main()
