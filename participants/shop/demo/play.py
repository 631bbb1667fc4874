"""Plays one order: starts its saga, shows it as it happens, and kills the coordinator where the story says so."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from rich.live import Live
from rich.markup import escape

from amends import Committed, Compensated, CompensationFailed
from amends.cli.show import saga_tree
from amends.v1.saga_pb2 import Saga
from shop.demo.books import query
from shop.saga import order

if TYPE_CHECKING:
    from rich.console import Console

    from amends import SagaClient, SagaHandle
    from shop.demo.stage import Stage
    from shop.demo.stories import Story
    from shop.orders.v1.orders_pb2 import OrderPlaced

SAGA_TIMEOUT_S = 60.0
FRAME_INTERVAL_S = 0.1
ENDED = frozenset({Saga.STATE_COMMITTED, Saga.STATE_COMPENSATED, Saga.STATE_COMPENSATION_FAILED})


async def play(stage: Stage, client: SagaClient, story: Story, console: Console) -> Saga:
    """Plays one order to its end and answers the saga as the coordinator shows it then."""
    console.print()
    console.print(f"[bold]{story.saga_id}[/]: {story.what_happens}")
    handle = await client.start(order, story.wanted, saga_id=story.saga_id)
    if story.crashes:
        await _crash(stage, story.saga_id, console)
    saga = await _follow(stage, client, story.saga_id, console)
    async with asyncio.timeout(SAGA_TIMEOUT_S):
        console.print(await _ending(handle))
    return saga


async def _follow(stage: Stage, client: SagaClient, saga_id: str, console: Console) -> Saga:
    # Where the output is no terminal nothing moves, and only the end is printed.
    with Live(console=console, auto_refresh=False, transient=True) as live:

        async def next_frame() -> Saga | None:
            saga = await client.get(saga_id)
            live.update(saga_tree(saga), refresh=True)
            if saga.state in ENDED:
                return saga
            await asyncio.sleep(FRAME_INTERVAL_S)
            return None

        saga = await stage.wait_until(next_frame, what=f"{saga_id} to end", timeout_s=SAGA_TIMEOUT_S)
    console.print(saga_tree(saga))
    return saga


async def _ending(handle: SagaHandle[OrderPlaced]) -> str:
    match await handle.wait():
        case Committed(output=placed):
            return (
                f"[green]placed:[/] {placed.order_id}, {placed.shipment_id} is on its way, {placed.charge_id} is paid"
            )
        case Compensated(failure=why):
            return f"[yellow]not placed, and nothing is left of it:[/] {escape(str(why))}"
        case CompensationFailed():
            return "[red]not placed, and something is left of it: a person has to look[/]"


async def _crash(stage: Stage, saga_id: str, console: Console) -> None:
    """Kills the coordinator between the authorisation and its record, starts it again, and asks it for nothing.

    How the saga goes on is read from the ledger's database, so that no request can be what sets it going.
    """

    async def authorized() -> str | None:
        rows = query(
            stage.data / "cards.db", "SELECT authorization_id FROM authorization WHERE reference = ?", [saga_id]
        )
        return str(rows[0][0]) if rows else None

    async def ended() -> bool | None:
        return True if stage.ledger.saga_ended(saga_id) else None

    authorization_id = await stage.wait_until(authorized, what="the authorisation", timeout_s=SAGA_TIMEOUT_S)
    killed = stage.kill_coordinator()
    recorded = stage.ledger.intent_state(saga_id, "authorize")
    console.print(
        f"[red]coordinator (process {killed}) killed with SIGKILL:[/] payments has {authorization_id}, "
        f"the ledger says authorize is {recorded}"
    )
    started = await stage.start_coordinator()
    console.print(f"coordinator started again (process {started}); nobody asks it for anything")
    await stage.wait_until(ended, what=f"{saga_id} to end by itself", timeout_s=SAGA_TIMEOUT_S)
