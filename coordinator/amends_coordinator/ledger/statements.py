"""The statements of the write path, compiled once: many rows per statement, and no work of SQLAlchemy's per row."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import false, select

from amends_coordinator.ledger import rows, schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection
    from sqlalchemy.engine import Dialect

    from amends_coordinator.ledger.dialect import SqlDialect
    from amends_coordinator.ledger.rows import Seen, Unlike

    Token = tuple[str, str, str, int]


class Statements:
    """Every statement that a batch of decisions needs, for one database."""

    def __init__(self, dialect: SqlDialect, compiler: Dialect) -> None:
        many = dialect.many_rows(compiler)
        self.insert_saga = many.insert_new(schema.saga, rows.SAGA_COLUMNS)
        self.update_saga = many.update(schema.saga, rows.SAGA_CHANGES, key=("id",))
        self.move_saga = many.update(schema.saga, rows.SAGA_MOVES, key=("id",))
        self.put_intent = many.insert_or_update(
            schema.intent, rows.INTENT_COLUMNS, key=rows.INTENT_KEY, changed=rows.INTENT_CHANGES
        )
        self.announce_intent = many.insert_or_update(
            schema.intent,
            rows.ANNOUNCED_COLUMNS,
            key=rows.INTENT_KEY,
            changed=rows.INTENT_CHANGES,
            constants=rows.ANNOUNCED_CONSTANTS,
        )
        self.settle_intent = many.update(schema.intent, rows.SETTLED_CHANGES, key=rows.INTENT_KEY)
        self.insert_dead_letter = many.insert_new(schema.dead_letter, rows.DEAD_LETTER_COLUMNS)
        self.put_dead_letter = many.insert_or_update(
            schema.dead_letter, rows.DEAD_LETTER_COLUMNS, key=("id",), changed=rows.DEAD_LETTER_CHANGES
        )
        self.insert_label = many.insert_new(schema.saga_label, rows.LABEL_COLUMNS)
        self.insert_participant = many.insert_new(schema.saga_participant, rows.PARTICIPANT_COLUMNS)
        saga, node = schema.saga, schema.node
        self._guard = many.select_unlike(saga)
        tokens = select(saga.c.id, saga.c.start_token, saga.c.written_by, saga.c.version)
        self._tokens = many.select_by_id(tokens, saga.c.id)
        unfenced = select(node.c.node_id).where(node.c.fenced == false()).with_for_update(read=True)
        self._unfenced = many.select_by_id(unfenced, node.c.node_id)

    def is_unfenced(self, connection: Connection, node_id: str) -> bool:
        """Lock the node's row against fencing, and answer whether it is there and not fenced."""
        return bool(self._unfenced.fetch(connection, (node_id,)))

    def unlike(self, connection: Connection, seen: Sequence[Seen]) -> dict[str, Unlike | None]:
        """The guard, see `dialect.UnlikeStatement`."""
        return self._guard.fetch(connection, seen)

    def tokens(self, connection: Connection, ids: Sequence[str]) -> list[Token]:
        """(id, start_token, written_by, version) of the sagas."""
        return self._tokens.fetch(connection, ids)
