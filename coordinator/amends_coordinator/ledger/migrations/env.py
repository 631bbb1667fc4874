"""Run by Alembic. The connection, and the transaction on it, are those of `migrate`, which commits."""

from __future__ import annotations

from alembic import context

from amends_coordinator.ledger.schema import metadata

if context.is_offline_mode():
    context.configure(dialect_name=context.config.attributes["dialect_name"], target_metadata=metadata)
else:
    context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
context.run_migrations()
