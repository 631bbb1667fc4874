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

from importlib.util import find_spec

if find_spec("sqlalchemy") is None:
    raise ModuleNotFoundError(
        "amends.barrier needs SQLAlchemy, which plain amends does not bring: pip install 'amends[barrier]'",
        name="sqlalchemy",
    )

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
