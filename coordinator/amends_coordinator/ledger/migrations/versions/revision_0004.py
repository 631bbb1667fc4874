"""The index of retention says what it holds without a list: SQLite made one for each row that was written."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

UNPURGED = (
    "state <> 'RUNNING' AND state <> 'COMPENSATING' AND state <> 'COMPENSATION_FAILED' AND due_time IS NULL "
    "AND NOT attention_required AND NOT purged"
)


def upgrade() -> None:
    """Make the index anew, of the same rows."""
    op.drop_index("ix_saga_retention", "saga")
    op.create_index(
        "ix_saga_retention",
        "saga",
        ["ended_time"],
        sqlite_where=sa.text(UNPURGED),
        postgresql_where=sa.text(UNPURGED),
    )
