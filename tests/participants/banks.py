"""Two banks and a coordinator as real processes: one service, two participants, each with a database of its own."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import grpc

from amends.v1.registry_service_pb2 import ListParticipantsRequest
from amends.v1.registry_service_pb2_grpc import RegistryServiceStub
from bank.v1.bank_pb2 import Money, Transfer
from shop.demo.books import query
from tests.scenarios.processes import Process, coordinator
from tests.waiting import pause

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path


BANKS = {"bank-a": ("alice:10000", "anna:500:frozen"), "bank-b": ("bob:2000", "ben:0:closed")}
"""The accounts of each bank."""

IN_ALL = 12_500
"""What is on all of them together, for ever."""

ALICE, BOB = "bank-a/alice", "bank-b/bob"

END_BOUND_S = 30.0


def transfer_of(minor_units: int, source: str = ALICE, target: str = BOB) -> Transfer:
    """Money from one account to another, each given as "bank/account"."""
    (from_bank, from_account), (to_bank, to_account) = source.split("/"), target.split("/")
    return Transfer(
        from_bank=from_bank,
        from_account=from_account,
        to_bank=to_bank,
        to_account=to_account,
        amount=Money(currency_code="EUR", minor_units=minor_units),
    )


@dataclass(slots=True)
class Town:
    """Everything that runs."""

    data: Path
    coordinator: Process
    running: dict[str, asyncio.subprocess.Process] = field(default_factory=dict[str, asyncio.subprocess.Process])

    async def open(self, name: str, *options: str) -> None:
        """Start a bank, wherever there is a free port, and wait until the coordinator knows of it."""
        before = await self._instances(name)
        accounts = [part for account in BANKS[name] for part in ("--account", account)]
        command = ["bank.process", name, "--coordinator", self.coordinator.address, "--data", str(self.data)]
        with (self.data / f"{name}.log").open("ab") as log:
            self.running[name] = await asyncio.create_subprocess_exec(
                sys.executable, "-m", *command, *accounts, *options, stdout=log, stderr=log, env=dict(os.environ)
            )

        while not await self._instances(name) - before:
            await pause()

    async def open_all(self) -> None:
        """Start the banks that are closed."""
        for name in BANKS.keys() - self.running.keys():
            await self.open(name)

    async def close(self, name: str, number: signal.Signals = signal.SIGKILL) -> None:
        """End a bank; with SIGKILL it gets no word in."""
        process = self.running.pop(name)
        process.send_signal(number)
        await asyncio.wait_for(process.wait(), END_BOUND_S)

    def balance(self, place: str) -> int:
        """What is on an account, given as "bank/account"."""
        name, number = place.split("/")
        return self._number(name, f"SELECT minor_units FROM account WHERE account_id = '{number}'")

    def in_all(self) -> int:
        """What is on all accounts of both banks."""
        return sum(self._number(name, "SELECT sum(minor_units) FROM account") for name in BANKS)

    def on_its_way(self) -> int:
        """How much has left an account and not yet arrived for good."""
        asked = "SELECT coalesce(sum(minor_units), 0) FROM debit WHERE state = 'on_its_way'"
        return sum(self._number(name, asked) for name in BANKS)

    def outcomes(self, name: str, saga_id: str, method: str) -> list[tuple[object, bool]]:
        """How the calls of a saga to a method ended, as the bank saw them, and whether they changed anything."""
        which = f"saga_id = '{saga_id}' AND method = '{method}'"
        asked = f"SELECT outcome, effect_made FROM call_journal WHERE {which} ORDER BY entry_id"
        return [(outcome, bool(made)) for outcome, made in query(self.data / f"{name}.db", asked)]

    async def _instances(self, name: str) -> set[str]:
        async with grpc.aio.insecure_channel(self.coordinator.address) as channel:
            listed = await RegistryServiceStub(channel).ListParticipants(ListParticipantsRequest(), wait_for_ready=True)
        return {each.instance_id for found in listed.participants if found.name == name for each in found.instances}

    def _number(self, name: str, asked: str) -> int:
        ((number,),) = query(self.data / f"{name}.db", asked)
        assert isinstance(number, int)
        return number


@asynccontextmanager
async def town(data: Path) -> AsyncGenerator[Town]:
    """A coordinator; its banks are opened by whoever needs them."""
    place = Town(data, coordinator(data, AMENDS_PARTICIPANT_LEASE_S="6"))
    try:
        await place.coordinator.start()
        yield place
    finally:
        for name in tuple(place.running):
            await place.close(name)
        if place.coordinator.running:
            await place.coordinator.stop()
    assert "Traceback" not in place.coordinator.log_text(), place.coordinator.log_text()
