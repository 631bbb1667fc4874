"""What a person found about a call, and an index of everything that is due, compensated sagas included."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add the columns, and make the index of due sagas anew: its old one left out every saga that had ended."""
    op.add_column(
        "intent",
        sa.Column(
            "key_forced",
            sa.Boolean(),
            nullable=False,
            server_default=sa.false(),
            comment="Whether a person had it repeated although the participant may have forgotten the key.",
        ),
    )
    op.add_column(
        "intent",
        sa.Column(
            "resolution",
            sa.String(24),
            nullable=True,
            comment="What a person found: HAPPENED, DID_NOT_HAPPEN or UNDONE_BY_HAND; null: nobody had to look.",
        ),
    )
    op.add_column(
        "intent",
        sa.Column("resolved_by", sa.Text(), nullable=True, comment="Who found it; null: nobody had to look."),
    )
    op.create_index("ix_audit_entry_created", "audit_entry", ["created_time", "id"])
    op.drop_index("ix_saga_due", "saga")
    op.create_index(
        "ix_saga_due",
        "saga",
        ["due_time"],
        sqlite_where=sa.text("(state NOT IN ('COMMITTED', 'COMPENSATED') OR due_time IS NOT NULL)"),
        postgresql_where=sa.text("(state NOT IN ('COMMITTED', 'COMPENSATED') OR due_time IS NOT NULL)"),
    )
