"""What lists of sagas are asked by, what retention needs, which participant has a call, and how participants that don't
announce themselves are reached.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

ACTIVE = "(state NOT IN ('COMMITTED', 'COMPENSATED') OR due_time IS NOT NULL)"
SETTLED = "state IN ('COMMITTED', 'COMPENSATED')"
UNPURGED = (
    "state NOT IN ('RUNNING', 'COMPENSATING', 'COMPENSATION_FAILED') AND due_time IS NULL AND NOT attention_required "
    "AND NOT purged"
)
EPOCH = "1970-01-01 00:00:00.000000"


def upgrade() -> None:
    """Add the columns and the table, fill what rows that exist need, and make the indexes."""
    _add_columns()
    _add_participants_of_sagas()
    op.execute("UPDATE saga SET progress_time = updated_time")
    op.execute(
        "UPDATE saga_label SET created_time = (SELECT created_time FROM saga WHERE saga.id = saga_label.saga_id)"
    )
    _index()


def _add_columns() -> None:
    op.add_column(
        "saga",
        _added_instant(
            "progress_time",
            "When a call was announced for the first time or settled, or the state changed, last (UTC).",
        ),
    )
    op.add_column(
        "saga",
        sa.Column(
            "purged",
            sa.Boolean(),
            nullable=False,
            server_default=sa.false(),
            comment="Whether retention has emptied it: only this row is left.",
        ),
    )
    op.add_column(
        "saga",
        sa.Column(
            "goes_first",
            sa.Boolean(),
            nullable=False,
            server_default=sa.false(),
            comment="Whether it is taken up before others that are due: it rolls back, or its node is gone.",
        ),
    )
    op.add_column(
        "saga",
        sa.Column(
            "waits_for",
            sa.Text(),
            nullable=False,
            server_default="",
            comment="The participant that its next call goes to, or that has its call now; empty: none, or several. "
            "While that one has its share of the memory the saga is left where it is.",
        ),
    )
    op.add_column("saga_label", _added_instant("created_time", "When the saga was started (UTC)."))
    op.add_column(
        "intent",
        sa.Column(
            "participant",
            sa.String(128),
            nullable=False,
            server_default="",
            comment="The participant that the newest attempt goes to; empty: none was found.",
        ),
    )
    op.add_column(
        "participant",
        sa.Column(
            "connection",
            sa.LargeBinary(),
            nullable=True,
            comment="The serialised amends.v1.StaticConnection; null: it announces itself.",
        ),
    )


def _added_instant(name: str, comment: str) -> sa.Column[object]:
    return sa.Column(name, sa.DateTime(timezone=True), nullable=False, server_default=EPOCH, comment=comment)


def _add_participants_of_sagas() -> None:
    id_of_saga = sa.String(128).with_variant(sa.String(128, collation="C"), "postgresql")
    op.create_table(
        "saga_participant",
        sa.Column("saga_id", id_of_saga, nullable=False, comment="The saga's id."),
        sa.Column("participant", sa.String(128), nullable=False, comment="The participant's name."),
        sa.Column(
            "created_time", sa.DateTime(timezone=True), nullable=False, comment="When the saga was started (UTC)."
        ),
        sa.ForeignKeyConstraint(["saga_id"], ["saga.id"], name="fk_saga_participant_saga_id"),
        sa.PrimaryKeyConstraint("saga_id", "participant", name="pk_saga_participant"),
        comment="The participants that a saga's input chose for its steps; its definition names others.",
    )
    op.create_index("ix_saga_participant_participant", "saga_participant", ["participant", "created_time", "saga_id"])


def _index() -> None:
    op.drop_index("ix_saga_created", "saga")
    op.drop_index("ix_saga_label_key", "saga_label")
    op.create_index("ix_saga_label_key", "saga_label", ["key", "value", "created_time", "saga_id"])
    op.drop_index("ix_saga_due", "saga")
    _index_sagas("ix_saga_due", ACTIVE, "goes_first", "due_time", "waits_for")
    _index_sagas("ix_saga_definition", SETTLED, "definition_name", "state", "created_time", "id")
    _index_sagas("ix_saga_definition_version", SETTLED, "definition_version", "state", "created_time", "id")
    _index_sagas("ix_saga_updated", SETTLED, "updated_time", "state", "created_time", "id")
    _index_sagas("ix_saga_attention", "attention_required", "state", "created_time", "id")
    _index_sagas("ix_saga_unproven", "unproven", "state", "created_time", "id")
    _index_sagas("ix_saga_unfinished", f"{SETTLED} AND due_time IS NOT NULL", "state", "created_time", "id")
    _index_sagas("ix_saga_retention", UNPURGED, "ended_time")


def _index_sagas(name: str, where: str, *columns: str) -> None:
    op.create_index(name, "saga", list(columns), sqlite_where=sa.text(where), postgresql_where=sa.text(where))
