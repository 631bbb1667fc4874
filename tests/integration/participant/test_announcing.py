"""A participant is known to the coordinator as long as both are there, whichever comes first or goes away."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta

import grpc
import pytest

from amends import DescriptorConflictError, ParticipantServer
from tests.integration.participant.calls import SERVICE, Inventory
from tests.integration.participant.registry import Registry, serving_registry
from tests.waiting import eventually

CONFLICT = (
    grpc.StatusCode.FAILED_PRECONDITION,
    "shop.inventory.v1.ReserveRequest differs; rename the package of yours",
    "DESCRIPTOR_CONFLICT",
)


def inventory(registry_port: int, *, capacity: int = 0, advertise: str | None = None) -> ParticipantServer:
    """A participant of the registry at that port."""
    coordinator = f"127.0.0.1:{registry_port}"
    server = ParticipantServer("inventory", coordinator=coordinator, capacity=capacity, advertise=advertise)
    server.add(Inventory())
    return server


async def free_port() -> int:
    """A port that was free a moment ago."""
    async with serving_registry(Registry()) as port:
        return port


async def test_announces_everything_and_takes_itself_out() -> None:
    """L1: what the coordinator needs to call and to describe the services is announced; a stop takes it back."""
    registry = Registry()
    async with serving_registry(registry) as port:
        async with inventory(port, capacity=7) as server:
            announced = await registry.next_registered()
            instance = announced.instance
            assert (announced.name, list(announced.services)) == ("inventory", [SERVICE])
            assert (instance.instance_id, instance.address) == (server.instance_id, f"127.0.0.1:{server.port}")
            assert instance.capacity == 7
            names = [file.name for file in announced.descriptors.file]
            assert names[-2:] == ["amends/v1/annotations.proto", "shop/inventory/v1/inventory.proto"]
            assert registry.deregistered.empty()
        gone = await registry.next_deregistered()
        assert (gone.name, gone.instance_id) == ("inventory", instance.instance_id)


async def test_every_start_is_a_new_instance() -> None:
    """L1: a process that starts again is never taken for the one before."""
    registry = Registry()
    async with serving_registry(registry) as port:
        server = inventory(port)
        seen: list[str] = []
        for _ in range(2):
            async with server:
                seen.append((await registry.next_registered()).instance.instance_id)
            assert (await registry.next_deregistered()).instance_id == seen[-1]
        assert len(set(seen)) == 2


@pytest.mark.parametrize(
    ("advertise", "told"), [("payments.example", "payments.example:{}"), ("10.0.0.7:99", "10.0.0.7:99")]
)
async def test_the_advertised_address_is_announced(advertise: str, told: str) -> None:
    """L1: behind a name or a translated port the coordinator hears how to reach the participant."""
    registry = Registry()
    async with serving_registry(registry) as port, inventory(port, advertise=advertise) as server:
        assert (await registry.next_registered()).instance.address == told.format(server.port) == server.address


async def test_renews_after_a_third_of_the_lease() -> None:
    """L1: the lease never ends while the participant lives."""
    registry = Registry(lease=timedelta(milliseconds=300))
    async with serving_registry(registry) as port, inventory(port):
        first = await registry.next_registered()
        begin = asyncio.get_running_loop().time()
        renewals = [await registry.next_registered() for _ in range(3)]
        took_s = asyncio.get_running_loop().time() - begin
    assert {renewal.instance.instance_id for renewal in renewals} == {first.instance.instance_id}
    assert took_s >= 0.25


async def test_a_coordinator_that_comes_later_hears_of_it(caplog: pytest.LogCaptureFixture) -> None:
    """L1: the order in which processes start does not matter; the log says so once, not once per try."""
    port, registry = await free_port(), Registry()
    with caplog.at_level(logging.INFO, "amends.participant"):
        async with inventory(port) as server:
            await eventually(lambda: "is not announced" in caplog.text, what="a line that says so")
            async with serving_registry(registry, port=port), asyncio.timeout(10):
                await server.announced()
                await registry.next_registered()
    lines = [record.getMessage() for record in caplog.records if "announced" in record.getMessage()]
    assert len(lines) == 2
    assert "is not announced" in lines[0]
    assert "is announced to" in lines[1]


async def test_a_coordinator_that_restarts_hears_of_it_at_once(caplog: pytest.LogCaptureFixture) -> None:
    """L1: a restart on the same port is noticed by the lost connection, long before a third of the lease is over."""
    before, after = Registry(), Registry()
    with caplog.at_level(logging.INFO, "amends.participant"):
        async with serving_registry(before) as port:
            server = inventory(port)
            await server.start()
            announced = await before.next_registered()
        async with serving_registry(after, port=port):
            again = await after.next_registered()
            await server.stop()
            assert (await after.next_deregistered()).instance_id == announced.instance.instance_id
    assert again == announced
    assert len([record for record in caplog.records if "announced" in record.getMessage()]) <= 3


async def test_a_refusal_is_tried_again_until_it_is_settled() -> None:
    """L2: whatever else the coordinator refuses with, the participant goes on serving and asking."""
    registry = Registry()
    registry.refusal = (grpc.StatusCode.UNAVAILABLE, "the ledger is away", "LEDGER_UNAVAILABLE")
    async with serving_registry(registry) as port, inventory(port) as server:
        for _ in range(3):
            await registry.next_registered()
        registry.refusal = None
        async with asyncio.timeout(10):
            await server.announced()


async def test_a_descriptor_conflict_ends_serving() -> None:
    """L2: a participant that can never be reached says why and ends, instead of waiting for calls for ever."""
    registry = Registry()
    registry.refusal = CONFLICT
    async with serving_registry(registry) as port, asyncio.timeout(10):
        with pytest.raises(DescriptorConflictError, match=r"shop\.inventory\.v1\.ReserveRequest differs"):
            await inventory(port).serve()
        async with inventory(port) as server:
            with pytest.raises(DescriptorConflictError, match="rename the package"):
                await server.announced()
