"""The demo's world: a coordinator, the five services and a card provider, each a process, in a fresh folder."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import tempfile
import time
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import grpc

from amends.v1.registry_service_pb2 import ListParticipantsRequest
from amends.v1.registry_service_pb2_grpc import RegistryServiceStub
from shop.demo.books import PARTICIPANTS
from shop.demo.errors import DemoFailedError
from shop.demo.ledger import chosen_ledger
from shop.demo.processes import Child, start_child, stop_children

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence

    from shop.demo.ledger import DemoLedger

T = TypeVar("T")

CHECKOUT = Path(__file__).resolve().parents[3]
START_TIMEOUT_S = 60.0
STOP_GRACE_S = 3
LEASE_S = 3
POLL_INTERVAL_S = 0.02
LISTENING = re.compile(r"^listening on 127\.0\.0\.1:(\d+)$", re.MULTILINE)


class Stage:
    """What runs, where it listens and where it keeps its data."""

    def __init__(self, data: Path, ledger: DemoLedger) -> None:
        self.data = data
        self.ledger = ledger
        self._port = 0
        self._coordinator: Child | None = None
        self._services: list[Child] = []
        self._coordinator_starts = 0

    @property
    def address(self) -> str:
        """Where the coordinator listens."""
        return f"127.0.0.1:{self._port}"

    async def start(self, holds: Mapping[str, Sequence[str]]) -> None:
        """Starts everything and waits until the coordinator knows all services.

        Arguments:
            holds: per service, the planted faults as `--hold-reply` takes them.
        """
        if not self.ledger.is_made_by_the_coordinator:
            await self._migrate()
        await self.start_coordinator()
        cards = await self._start_cards()
        for name in PARTICIPANTS:
            self._start_service(name, holds.get(name, ()), cards)
        async with grpc.aio.insecure_channel(self.address) as channel:
            registry = RegistryServiceStub(channel)
            await self.wait_until(
                lambda: _all_announced(registry), what="all services to announce themselves", timeout_s=START_TIMEOUT_S
            )

    async def start_coordinator(self) -> int:
        """Starts the coordinator, on the port that it had before if it ran before; answers its process id."""
        self._coordinator_starts += 1
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("AMENDS_")}
        settings = {
            "AMENDS_LEDGER_URL": self.ledger.url,
            "AMENDS_PORT": str(self._port),
            "AMENDS_STOP_GRACE_S": str(STOP_GRACE_S),
            # On PostgreSQL the coordinator that comes after a killed one waits for a lease.
            "AMENDS_LEASE_TTL_S": str(LEASE_S),
            "AMENDS_HEARTBEAT_INTERVAL_S": str(LEASE_S / 3),
        }
        coordinator = start_child(
            "coordinator",
            ["amends_coordinator"],
            log=self.data / f"coordinator-{self._coordinator_starts}.log",
            environment=inherited | settings,
        )
        self._coordinator = coordinator
        self._port = await self.wait_until(
            lambda: _listening_port(coordinator), what="the coordinator to listen", timeout_s=START_TIMEOUT_S
        )
        return coordinator.process.pid

    async def _migrate(self) -> None:
        """Makes the ledger's tables, as an operator does before the first start."""
        migrating = start_child(
            "amends migrate",
            ["amends.cli", "migrate"],
            log=self.data / "migrate.log",
            environment=dict(os.environ) | {"AMENDS_LEDGER_URL": self.ledger.url},
        )
        code = await self.wait_until(
            lambda: _exit_code(migrating), what="amends migrate to end", timeout_s=START_TIMEOUT_S
        )
        if code:
            raise DemoFailedError(f"the ledger's tables could not be made:\n{migrating.last_words()}")

    def kill_coordinator(self) -> int:
        """Ends the coordinator with SIGKILL and answers its process id."""
        if self._coordinator is None:
            raise DemoFailedError("there is no coordinator to kill: start it first")
        killed, self._coordinator = self._coordinator, None
        killed.kill()
        return killed.process.pid

    async def wait_until(self, condition: Callable[[], Awaitable[T | None]], *, what: str, timeout_s: float) -> T:
        """The first thing that `condition` gives; fails when time is up or a process is gone."""
        give_up_time = time.monotonic() + timeout_s
        while (found := await condition()) is None:
            for child in self._running():
                child.check()
            if time.monotonic() > give_up_time:
                raise DemoFailedError(f"waited {timeout_s:.0f} s for {what} in vain\n{self._last_words()}")
            await asyncio.sleep(POLL_INTERVAL_S)
        return found

    def stop(self) -> tuple[str, ...]:
        """Ends the coordinator first, so that its calls can finish, then the services; names those that ended badly."""
        coordinator = [] if self._coordinator is None else [self._coordinator]
        services, self._coordinator, self._services = self._services, None, []
        return stop_children(coordinator) + stop_children(services)

    async def _start_cards(self) -> str:
        """Starts the card provider, which no saga knows of; answers where it listens."""
        cards = start_child(
            "cards", ["shop.cards", "--data", str(self.data)], log=self.data / "cards.log", environment=os.environ
        )
        self._services.append(cards)
        port = await self.wait_until(
            lambda: _listening_port(cards), what="the card provider to listen", timeout_s=START_TIMEOUT_S
        )
        return f"127.0.0.1:{port}"

    def _start_service(self, name: str, holds: Sequence[str], cards: str) -> None:
        options = [option for hold in holds for option in ("--hold-reply", hold)]
        if name == "payments":
            options += ["--cards", cards]
        command = ["shop.process", name, "--coordinator", self.address, "--data", str(self.data), *options]
        log = self.data / f"{name}.log"
        self._services.append(start_child(name, command, log=log, environment=os.environ))

    def _last_words(self) -> str:
        said = [f"{child.name} said last:\n{child.last_words()}" for child in self._running()]
        return "\n".join([*said, "KEEP=1 keeps the whole logs and the databases of a run"])

    def _running(self) -> list[Child]:
        return [*self._services, *([] if self._coordinator is None else [self._coordinator])]


@asynccontextmanager
async def fresh_stage() -> AsyncGenerator[Stage]:
    """A stage in a folder of its own; at the end its processes are stopped, and it is removed unless KEEP=1."""
    parent = CHECKOUT / "var" / "demo"
    parent.mkdir(parents=True, exist_ok=True)
    data = Path(tempfile.mkdtemp(dir=parent))
    keep = os.environ.get("KEEP") == "1"
    try:
        with chosen_ledger(data, keep=keep) as ledger:
            stage = Stage(data, ledger)
            try:
                yield stage
            finally:
                stage.stop()
    finally:
        if not keep:
            shutil.rmtree(data)


async def _exit_code(child: Child) -> int | None:
    return child.process.poll()


async def _listening_port(child: Child) -> int | None:
    found = LISTENING.search(child.output())
    return None if found is None else int(found[1])


async def _all_announced(registry: RegistryServiceStub) -> bool | None:
    try:
        listed = await registry.ListParticipants(ListParticipantsRequest(), timeout=2.0)
    except grpc.aio.AioRpcError:
        return None
    there = {participant.name for participant in listed.participants if participant.instances}
    return True if there >= set(PARTICIPANTS) else None
