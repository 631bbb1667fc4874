"""What is written besides decisions: nodes, claims, definitions, participants. Each in a transaction of its own.

The writer may run a task again after an error that left open whether it was committed, so every one of them comes to
the same result when it is repeated.
"""

from __future__ import annotations

import json
import time
from functools import cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    ColumnElement,
    Integer,
    Select,
    and_,
    bindparam,
    delete,
    false,
    func,
    or_,
    select,
    text,
    true,
    update,
)

from amends_coordinator.core.ids import Instant, NodeId, SagaId
from amends_coordinator.core.states import SagaState
from amends_coordinator.ledger import reads, schema
from amends_coordinator.ledger.damage import among_sound, is_sound
from amends_coordinator.ledger.picking import Picking
from amends_coordinator.ledger.rows import clean
from amends_coordinator.ports.ledger import ROOMY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection

    from amends_coordinator.core.definition import StoredDefinition
    from amends_coordinator.ledger.dialect import SqlDialect
    from amends_coordinator.ports.ledger import InstanceRow, ParticipantRow, Room


SLICE = 500
"""Sagas that are released in one transaction at most."""


def arrive(connection: Connection, dialect: SqlDialect, node_id: NodeId) -> bool:
    """Add this incarnation's row; answers whether there are others that nobody has fenced."""
    node = schema.node
    started_time = Instant(time.time_ns() // 1_000)
    row = {"node_id": node_id, "started_time": started_time, "fenced": False, "format": schema.FORMAT}
    connection.execute(dialect.insert_new(node), row)
    others = select(node.c.node_id).where(node.c.node_id != node_id, node.c.fenced == false()).limit(1)
    return connection.execute(others).first() is not None


def fence_others(connection: Connection, node_id: NodeId) -> None:
    """Fence every other incarnation. Only the holder of the lock may do this. Rows are locked in the order of their
    ids, this incarnation's own among them, so that two that fence each other do not wait for each other.
    """
    node = schema.node
    unfenced = or_(node.c.fenced == false(), node.c.node_id == node_id)
    connection.execute(select(node.c.node_id).where(unfenced).order_by(node.c.node_id).with_for_update()).all()
    connection.execute(update(node).where(node.c.node_id != node_id, node.c.fenced == false()).values(fenced=True))


def release_others(connection: Connection, node_id: NodeId) -> int:
    """Release a slice of the sagas that other incarnations own; answers how many. Rows that somebody keeps locked are
    left out.
    """
    return _release(connection, schema.saga.c.owner != node_id, SLICE)


def count_of_others(connection: Connection, node_id: NodeId) -> int:
    """How many sagas other incarnations own, locked ones included."""
    saga = schema.saga
    owned = select(func.count()).select_from(saga).where(text(schema.ACTIVE), saga.c.owner != node_id)
    return connection.execute(owned).scalar_one()


def give_up(connection: Connection, node_id: NodeId) -> None:
    """Release this incarnation's sagas, and fence it: it will never write again, so the next one need not wait."""
    _release(connection, schema.saga.c.owner == node_id, None)
    connection.execute(update(schema.node).where(schema.node.c.node_id == node_id).values(fenced=True))


def _release(connection: Connection, owned: ColumnElement[bool], limit: int | None) -> int:
    """Let anybody claim the sagas at once: due since they were last written, so that the oldest come first."""
    saga = schema.saga
    chosen = select(saga.c.id).where(text(schema.ACTIVE), saga.c.owner.is_not(None), owned).limit(limit)
    ids = connection.execute(chosen.with_for_update(key_share=True, skip_locked=True)).scalars().all()
    rows = [{"row_id": saga_id} for saga_id in ids]
    if rows:
        released = update(saga).where(saga.c.id == bindparam("row_id"))
        changes = {"owner": None, "goes_first": True, "due_time": saga.c.updated_time, "version": saga.c.version + 1}
        connection.execute(released.values(changes), rows)
    return len(rows)


def heartbeat(connection: Connection, node_id: NodeId, now: Instant) -> None:
    """Write the node's sign of life."""
    connection.execute(update(schema.node).where(schema.node.c.node_id == node_id).values(heartbeat_time=now))


def claim(
    connection: Connection, node_id: NodeId, *, now: Instant, limit: int, held: frozenset[SagaId], room: Room = ROOMY
) -> Sequence[SagaId]:
    """Become the owner of sagas that are due; answers their ids, those that go first, then the others, of both the
    oldest due first.
    """
    saga = schema.saga
    picking = Picking(limit=limit, held=held, room=room)
    unowned: list[dict[str, str]] = []
    for goes_first in (True, False):
        more = True
        while more and picking.wanted > 0:
            # As many more are looked at as are held or picked already, so that those never hide others.
            most = picking.wanted + picking.passed_over
            due = _due(goes_first=goes_first, is_crowded=bool(picking.crowded))
            asked = {"me": node_id, "now": now, "most": most, "crowded": sorted(picking.crowded)}
            found = connection.execute(due, asked).all()
            for saga_id, owner, waits_for, is_over in found:
                if picking.offer(SagaId(saga_id), "" if is_over else waits_for) and owner is None:
                    unowned.append({"row_id": saga_id})
            more = len(found) == most  # some were passed over for want of room: they are left out from now on
    if unowned:
        claimed = and_(saga.c.id == bindparam("row_id"), saga.c.owner.is_(None))
        connection.execute(update(saga).where(claimed).values(owner=node_id, version=saga.c.version + 1), unowned)
    return list(picking.picked)


@cache
def _due(*, goes_first: bool, is_crowded: bool) -> Select[Any, Any, Any, bool]:
    """The sagas that are due, oldest first, without those that wait for a crowded participant; but one whose timeout
    rolls it back is looked at whatever it waits for. Made once, since it is asked every second, and making it takes
    longer than asking. (Any: what SQLAlchemy knows of a column's type.)
    """
    saga, now = schema.saga, bindparam("now", type_=schema.saga.c.due_time.type)
    is_over = and_(
        saga.c.deadline_time <= now,
        saga.c.state == SagaState.RUNNING.value,
        saga.c.point_of_no_return_passed == false(),
    )
    fits = or_(saga.c.waits_for.not_in(bindparam("crowded", expanding=True)), is_over) if is_crowded else true()
    return (
        select(saga.c.id, saga.c.owner, saga.c.waits_for, is_over)
        .where(
            text(schema.ACTIVE),
            saga.c.goes_first == (true() if goes_first else false()),
            saga.c.due_time <= now,
            fits,
            or_(saga.c.owner.is_(None), saga.c.owner == bindparam("me")),
            saga.c.format <= schema.FORMAT,
        )
        .order_by(saga.c.due_time, saga.c.id)
        .limit(bindparam("most", type_=Integer()))
        .with_for_update(key_share=True, skip_locked=True)
    )


def of_later_formats(connection: Connection) -> dict[SagaId, int]:
    """The sagas with something left to do whose rows have a format that this release doesn't know: nobody claims them.
    With their formats.
    """
    saga = schema.saga
    found = select(saga.c.id, saga.c.format).where(text(schema.ACTIVE), saga.c.format > schema.FORMAT)
    return {SagaId(saga_id): number for saga_id, number in connection.execute(found)}


def postpone(connection: Connection, ids: Sequence[SagaId], due_time: Instant) -> None:
    """Make sagas due later; nothing else about them changes."""
    saga = schema.saga
    rows = [{"row_id": saga_id} for saga_id in ids]
    connection.execute(update(saga).where(saga.c.id == bindparam("row_id")).values(due_time=due_time), rows)


def put_definition(connection: Connection, dialect: SqlDialect, definition: StoredDefinition) -> StoredDefinition:
    """Store a definition unless it exists, as the newest of its name; answers what is stored.

    Raises:
        UnreadableDefinitionError: it exists and is damaged.
    """
    table = schema.saga_definition
    newest = among_sound(connection, "definitions", lambda sound: _newest_time(connection, definition.name, sound))
    row = {
        "name": definition.name,
        "version": definition.version,
        "content": definition.content,
        "created_time": definition.created_time if newest is None else max(definition.created_time, newest + 1),
    }
    connection.execute(dialect.insert_new(table), row)
    stored = reads.get_definition(connection, definition.name, definition.version)
    if stored is None:
        raise LookupError(f"definition {definition.name} {definition.version} was stored and isn't there")
    return stored


def _newest_time(connection: Connection, name: str, sound: str) -> Instant | None:
    created_time = schema.saga_definition.c.created_time
    statement = select(func.max(created_time)).where(schema.saga_definition.c.name == name)
    if sound:
        statement = statement.where(is_sound(created_time, sound))
    return connection.execute(statement).scalar()


def put_participant(
    connection: Connection, dialect: SqlDialect, participant: ParticipantRow, instance: InstanceRow | None
) -> None:
    """Add or replace a participant and one of its instances; without one it is static and has none."""
    changed = ("services", "descriptors", "updated_time", "connection")
    row = {
        "name": participant.name,
        "services": json.dumps(list(participant.services)),
        "descriptors": participant.descriptors,
        "created_time": participant.created_time,
        "updated_time": participant.updated_time,
        "connection": participant.connection,
    }
    connection.execute(dialect.insert_or_update(schema.participant, key=("name",), changed=changed), row)
    if instance is None:
        _remove_instances(connection, participant.name)
        return
    process = {
        "participant": instance.participant,
        "instance_id": instance.instance_id,
        "address": clean(instance.address),
        "capacity": instance.capacity,
        "lease_end_time": instance.lease_end_time,
    }
    key, moved = ("participant", "instance_id"), ("address", "capacity", "lease_end_time")
    connection.execute(dialect.insert_or_update(schema.participant_instance, key=key, changed=moved), process)


def remove_instance(connection: Connection, participant: str, instance_id: str) -> None:
    """Remove an instance if it is there."""
    table = schema.participant_instance
    connection.execute(delete(table).where(table.c.participant == participant, table.c.instance_id == instance_id))


def remove_participant(connection: Connection, participant: str) -> None:
    """Remove a participant and its instances if they are there."""
    _remove_instances(connection, participant)
    connection.execute(delete(schema.participant).where(schema.participant.c.name == participant))


def _remove_instances(connection: Connection, participant: str) -> None:
    table = schema.participant_instance
    connection.execute(delete(table).where(table.c.participant == participant))
