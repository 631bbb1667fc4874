"""What a relay asks of the database. Each function gets a session in a transaction of its own.

One relay at a time delivers: whose turn it is stands in `amends_outbox_relay`, until a time by the database's clock, so
that clocks of different machines don't matter. Nothing is locked while an event is on its way.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC
from typing import TYPE_CHECKING

from sqlalchemy import ColumnElement, Float, cast, delete, extract, func, or_, select, update
from sqlalchemy.dialects import postgresql, sqlite

from amends.outbox.event import Event
from amends.outbox.tables import OUTBOX, RELAY

if TYPE_CHECKING:
    from collections.abc import Collection

    from sqlalchemy import RowMapping
    from sqlalchemy.orm import Session

TURN = "relay"
"""The one row of `amends_outbox_relay`."""

ERROR_LIMIT = 500
"""The most characters of an error that are kept with an event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingEvent:
    """An event in the outbox.

    Attributes:
        number: its row's.
        attempt_count: how often it was refused so far.
    """

    number: int
    attempt_count: int
    event: Event


def is_wanted(session: Session, holder: str) -> bool:
    """Whether there is anything to deliver and no other relay is at it. Only reads: it is asked all the time."""
    if session.execute(select(OUTBOX.c.id).limit(1)).first() is None:
        return False
    taken = select(RELAY.c.holder).where(RELAY.c.holder != holder, RELAY.c.expire_s >= _now(session))
    return session.execute(taken).first() is None


def take_turn(session: Session, holder: str, lease_s: float) -> bool:
    """Make it this relay's turn for so long from now on; whether it is.

    It is refused while it is another's. Where it is this relay's already, its time begins anew.
    """
    now = _now(session)
    first = (postgresql if _on_postgresql(session) else sqlite).insert(RELAY)
    session.execute(first.values(name=TURN, holder="", expire_s=0).on_conflict_do_nothing())
    free = or_(RELAY.c.holder == holder, RELAY.c.expire_s < now)
    taking = update(RELAY).where(RELAY.c.name == TURN, free).values(holder=holder, expire_s=now + lease_s)
    return session.execute(taking.returning(RELAY.c.name)).first() is not None


def end_turn(session: Session, holder: str) -> None:
    """Let others have their turn at once."""
    session.execute(update(RELAY).where(RELAY.c.name == TURN, RELAY.c.holder == holder).values(expire_s=0))


def next_events(session: Session, without: Collection[str], limit: int, *, refused: bool) -> list[WaitingEvent]:
    """The oldest events, but none of these keys, nor, unless `refused`, of keys with an event that was refused."""
    query = select(OUTBOX).where(OUTBOX.c.key.not_in(sorted(without)))
    if not refused:
        other = OUTBOX.alias()
        query = query.where(OUTBOX.c.key.not_in(select(other.c.key).where(other.c.attempt_count > 0)))
    rows = session.execute(query.order_by(OUTBOX.c.id).limit(limit))
    return [_read(row) for row in rows.mappings()]


def forget(session: Session, numbers: Collection[int]) -> None:
    """Delete events that were delivered."""
    session.execute(delete(OUTBOX).where(OUTBOX.c.id.in_(sorted(numbers))))


def note_refusal(session: Session, number: int, error: str) -> None:
    """Write down that the broker did not take an event, and why."""
    values = {"attempt_count": OUTBOX.c.attempt_count + 1, "last_error": error[:ERROR_LIMIT]}
    session.execute(update(OUTBOX).where(OUTBOX.c.id == number).values(values))


def _on_postgresql(session: Session) -> bool:
    return session.get_bind(clause=OUTBOX).dialect.name == "postgresql"


def _now(session: Session) -> ColumnElement[float]:
    """Seconds since 1970, by the database's clock."""
    if _on_postgresql(session):
        return cast(extract("epoch", func.clock_timestamp()), Float(53))
    return cast((func.julianday("now") - 2_440_587.5) * 86_400.0, Float)


def _read(values: RowMapping) -> WaitingEvent:
    create_time = values["create_time"]
    event = Event(
        event_id=values["event_id"],
        topic=values["topic"],
        key=values["key"],
        payload=bytes(values["payload"]),
        content_type=values["content_type"],
        type_name=values["type_name"],
        headers=values["headers"],
        saga_id=values["saga_id"],
        step=values["step"],
        # SQLite knows no time zones.
        create_time=create_time.replace(tzinfo=UTC) if create_time.tzinfo is None else create_time.astimezone(UTC),
    )
    return WaitingEvent(number=values["id"], attempt_count=values["attempt_count"], event=event)
