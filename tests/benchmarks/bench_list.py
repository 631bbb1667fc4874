"""`make bench-list`: how long a list of sagas takes on a ledger with a million of them, on both databases.

Every filter of `ListSagas` is asked through gRPC, alone and with state and time, of a coordinator that runs as a
process; each figure is the median of some answers. The SQLite file stays in `.bench` for the next run; PostgreSQL is
started for this one and its data removed.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from pathlib import Path

import grpc

from amends import Saga
from amends.definition import build_definition
from amends.v1.registry_service_pb2_grpc import RegistryServiceStub
from amends.v1.saga_service_pb2 import GetSagaDefinitionRequest, ListSagasRequest, RegisterSagaDefinitionRequest
from amends.v1.saga_service_pb2_grpc import SagaServiceStub
from amends_coordinator.ledger.migrate import upgrade
from scenario.v1.scenario_pb2 import ScenarioInput
from tests.benchmarks import list_questions, list_rows
from tests.benchmarks.list_fill import fill
from tests.benchmarks.load import Do, Undo
from tests.postgres import NOT_TESTED, PostgresServer, find_package
from tests.scenarios.inside import announcement
from tests.scenarios.processes import coordinator

BOUND_MS = 50.0
SLACK = 5
"""Machines are shared and noisy: a run fails only far above the bound."""

FOLDER = Path(__file__).resolve().parents[2] / ".bench"


def definition(name: str, number: int) -> Saga[ScenarioInput, None]:
    """One version of a definition. Orders and payments name their participant, the others are served by any."""
    saga = Saga(name, input=ScenarioInput, timeout=timedelta(minutes=5 + number))
    participant = list_questions.BY_NAME if name in ("order", "payment") else ""
    step = saga.step("first", Do(name=name, amount=saga.input.amount), participant=participant)
    step.compensated_by(Undo(effect_id=step.response.effect_id, name=name))
    return saga


async def register(address: str) -> None:
    """Register every version of every definition, oldest first, and a participant that serves all of them."""
    async with grpc.aio.insecure_channel(address) as channel:
        sagas = SagaServiceStub(channel)
        for number in range(list_rows.VERSIONS):
            for name in list_rows.NAMES:
                message = build_definition(definition(name, number))
                await sagas.RegisterSagaDefinition(RegisterSagaDefinitionRequest(definition=message))
        await RegistryServiceStub(channel).RegisterParticipant(announcement(list_questions.BY_SERVICE, "127.0.0.1:9"))


@asynccontextmanager
async def served(folder: Path, url: str) -> AsyncGenerator[str]:
    """A coordinator on the ledger, as a process; its address."""
    process = coordinator(folder, AMENDS_LEDGER_URL=url, AMENDS_LOG_LEVEL="warning", AMENDS_SWEEP_INTERVAL_S="1")
    await process.start()
    try:
        yield process.address
    finally:
        await process.stop()


async def made(folder: Path, url: str, count: int) -> None:
    """A ledger with so many sagas."""
    upgrade(url)
    async with served(folder, url) as address:
        await register(address)
    fill(url, count, say)


async def measured(address: str, questions: dict[str, ListSagasRequest], repeats: int) -> dict[str, float]:
    """The median time of each answer, in milliseconds."""
    found: dict[str, float] = {}
    async with grpc.aio.insecure_channel(address, options=[("grpc.max_receive_message_length", -1)]) as channel:
        sagas = SagaServiceStub(channel)
        for name, question in questions.items():
            times: list[float] = []
            for _ in range(repeats):
                began_s = time.perf_counter()
                await sagas.ListSagas(question)
                times.append((time.perf_counter() - began_s) * 1_000)
            found[name] = statistics.median(times)
    return found


async def questions(address: str) -> dict[str, ListSagasRequest]:
    """Everything that is asked."""
    moment = list_questions.now()
    async with grpc.aio.insecure_channel(address) as channel:
        order = await SagaServiceStub(channel).GetSagaDefinition(GetSagaDefinitionRequest(name="order"))
    asked: dict[str, ListSagasRequest] = {}
    for name, alone in list_questions.singles(moment, order.definition.version).items():
        asked |= dict(list_questions.combined(name, alone, moment))
    return asked | list_questions.hard(moment)


def say(words: str) -> None:
    """Tell how far it is, beside the figures."""
    print(words, file=sys.stderr, flush=True)


@contextmanager
def server() -> Generator[str | None]:
    """A PostgreSQL with an empty database; None where there is none for this platform."""
    package = find_package()
    if package is None:
        say(NOT_TESTED)
        yield None
        return
    running = PostgresServer(package)
    try:
        yield running.url(running.create_database())
    finally:
        running.stop()


async def ask(folder: Path, url: str, repeats: int) -> dict[str, float]:
    """The figures of one ledger."""
    async with served(folder, url) as address:
        asked = await questions(address)
        await measured(address, asked, 1)  # so that the files are in the system's cache, as a running ledger's are
        return await measured(address, asked, repeats)


async def on_file(count: int, repeats: int) -> dict[str, float]:
    """The figures of SQLite, on a file that stays."""
    FOLDER.mkdir(exist_ok=True)
    file = FOLDER / f"list-{count}.sqlite3"
    if not file.exists():
        unfinished = file.with_suffix(".unfinished")
        unfinished.unlink(missing_ok=True)
        await made(FOLDER, f"sqlite:///{unfinished}", count)
        unfinished.rename(file)
    upgrade(f"sqlite:///{file}")  # it may have stayed from an earlier release
    return await ask(FOLDER, f"sqlite:///{file}", repeats)


async def on_server(count: int, repeats: int) -> dict[str, float]:
    """The figures of PostgreSQL; none where there is none."""
    with server() as url:
        if url is None:
            return {}
        await made(FOLDER, url, count)
        return await ask(FOLDER, url, repeats)


ON = {"sqlite": on_file, "postgresql": on_server}


def main() -> int:
    """Measure and print; 1 where an answer took far too long."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sagas", type=int, default=1_001_000, help="how many the ledger has (default 1,001,000)")
    parser.add_argument("--repeats", type=int, default=7, help="answers per figure (default 7)")
    parser.add_argument("--databases", nargs="+", choices=ON, default=list(ON), help="which (default both)")
    options = parser.parse_args()
    worst, filters = 0.0, 0
    for database in options.databases:
        figures = asyncio.run(ON[database](options.sagas, options.repeats))
        for name, median_ms in figures.items():
            print(f"list_{name}_{database}_ms={median_ms:.1f}")
        worst, filters = max(worst, *figures.values(), 0.0), max(filters, len(figures))
    print(f"list: filters={filters} worst_median_ms={worst:.1f}")
    return int(worst > BOUND_MS * SLACK)


if __name__ == "__main__":
    sys.exit(main())
