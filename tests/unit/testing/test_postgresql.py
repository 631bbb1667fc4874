"""Virtual time stands still while PostgreSQL works, whose driver watches its socket itself."""

from __future__ import annotations

import asyncio

from sqlalchemy import make_url, text
from sqlalchemy.ext.asyncio import create_async_engine

from amends.testing import run


def test_time_stands_still_while_postgresql_works(postgres_database: str) -> None:
    """No timeout of a handler is over because its database took its time."""

    async def main() -> float:
        engine = create_async_engine(make_url(postgres_database).set(drivername="postgresql+psycopg"))
        async with asyncio.timeout(0.001), engine.begin() as connection:
            await connection.execute(text("select pg_sleep(0.02)"))
        await engine.dispose()
        return asyncio.get_running_loop().time()

    assert run(main) == 0
