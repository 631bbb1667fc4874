"""What reflection knows of definitions, whatever becomes of those that ask."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from amends_coordinator.core.ids import Instant, NodeId
from amends_coordinator.definitions.catalog import Catalog
from amends_coordinator.definitions.type_index import FileIndex
from amends_coordinator.engine.registry import Registry
from amends_coordinator.grpc_api.known_types import KnownTypes
from amends_coordinator.ledger.memory import MemoryLedger
from tests.unit.engine.rig import Telemetry
from tests.unit.grpc_api.samples import NOW, ManualClock, stored_errand

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from amends_coordinator.core.ids import DefinitionVersion
    from amends_coordinator.ports.ledger import DefinitionPage

TYPE = "scenario.v1.DoRequest"


class CountingLedger(MemoryLedger):
    """The ledger in memory, which counts what is read, and in which whoever asks may hang up after the reading."""

    read = 0
    hangs_up = False

    async def list_definitions(
        self, *, limit: int, before: tuple[Instant, str, DefinitionVersion] | None
    ) -> DefinitionPage:
        """See the port."""
        page = await super().list_definitions(limit=limit, before=before)
        self.read += len(page.definitions)
        task = asyncio.current_task()
        if self.hangs_up and task is not None:
            task.cancel()
        return page


@pytest.fixture
async def ledger() -> AsyncGenerator[CountingLedger]:
    """An open ledger with one definition."""
    ledger = CountingLedger()
    await ledger.open(NodeId("n-1"), plans=Catalog(ledger_name="staging").plan)
    await ledger.put_definition(stored_errand())
    yield ledger
    await ledger.close()


def types_of(ledger: MemoryLedger) -> KnownTypes:
    """What is known without any participant."""
    registry = Registry(ledger=ledger, clock=ManualClock(), telemetry=Telemetry(), lease_us=1)
    return KnownTypes(FileIndex(()), registry=registry, ledger=ledger)


async def test_one_that_hangs_up_takes_no_types_along(ledger: CountingLedger) -> None:
    """L2: a client that went away while definitions were being read left their types unknown for ever."""
    types = types_of(ledger)
    ledger.hangs_up = True
    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(types.with_definitions())
    ledger.hangs_up = False
    assert types.at_hand().file_of_symbol(TYPE) is None
    assert (await types.with_definitions()).file_of_symbol(TYPE) is not None


async def test_what_nobody_knows_costs_one_definition(ledger: CountingLedger) -> None:
    """Each question for an unknown type looks for new definitions, and reads no more than one of those it knows."""
    for number in range(40):
        await ledger.put_definition(stored_errand(name=f"errand_{number}", created_time=Instant(NOW + number)))
    types = types_of(ledger)
    await types.with_definitions()
    assert ledger.read >= 41
    ledger.read = 0
    await types.with_definitions()
    assert ledger.read == 1
    await ledger.put_definition(stored_errand(name="newest", created_time=Instant(NOW + 99)))
    ledger.read = 0
    await types.with_definitions()
    assert ledger.read <= 1 + 16


async def test_a_damaged_definition_hides_no_other(ledger: CountingLedger) -> None:
    """L2: its own types are unknown, and that is all."""
    damaged = replace(stored_errand(name="damaged", created_time=Instant(NOW + 1)), content=b"\xff")
    await ledger.put_definition(damaged)
    assert (await types_of(ledger).with_definitions()).file_of_symbol(TYPE) is not None
