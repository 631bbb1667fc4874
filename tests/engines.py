"""Closes the SQLAlchemy engines of tests, with all their connections."""

from __future__ import annotations

from sqlalchemy import Engine, QueuePool
from sqlalchemy.ext.asyncio import AsyncEngine

from tests.waiting import eventually


async def closed(engine: Engine | AsyncEngine) -> None:
    """Close an engine once nobody has a connection of it any more.

    A handler that outlives its server, and whoever is cancelled while it closes a session, gives its connection back
    a little later. A disposed engine would take it and never close it, and the warning about that would fail whichever
    test runs when it is collected.
    """
    pool = engine.pool
    assert isinstance(pool, QueuePool)
    await eventually(lambda: pool.checkedout() == 0, what="all connections are given back")
    if isinstance(engine, AsyncEngine):
        await engine.dispose()
    else:
        engine.dispose()
