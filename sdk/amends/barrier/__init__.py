"""A barrier around a participant's work: once per key, never after its compensation, refusals kept (extra `barrier`).

    from amends import barrier

    async with barrier.transaction(sessions) as session: ...   # the work of an action or a compensation
    async with barrier.effect(sessions) as effect: ...         # the same for an effect outside of the database
    return await barrier.lookup(sessions, AuthorizeResponse)   # the whole handler of a lookup
    await barrier.purge(sessions)                              # now and then
    barrier.TABLES.create_all(engine)                          # once, or with Alembic

It keeps one row per key in the participant's own database, in the same transaction as the work. docs/barrier.md has the
rules; `rules` has them as tables.
"""

from __future__ import annotations

from importlib import import_module

try:
    import_module("sqlalchemy.ext.asyncio")  # since 2.1 it needs greenlet, which the coordinator's extra does not bring
except ImportError as error:
    raise ModuleNotFoundError(
        "amends.barrier needs SQLAlchemy with its asyncio part, which an extra brings: pip install 'amends[barrier]'",
        name="sqlalchemy",
    ) from error

from amends.barrier.effect import Effect, effect
from amends.barrier.effect_course import EffectState
from amends.barrier.errors import BarrierUseError
from amends.barrier.hooks import before_commit
from amends.barrier.lookup import lookup
from amends.barrier.purging import purge
from amends.barrier.tables import TABLES
from amends.barrier.transaction import transaction

__all__ = [
    "TABLES",
    "BarrierUseError",
    "Effect",
    "EffectState",
    "before_commit",
    "effect",
    "lookup",
    "purge",
    "transaction",
]
