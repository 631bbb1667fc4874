"""Asks each shop database, and the card provider's, with plain SQL, what stands in it and which calls came."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from amends import key_uuid

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

Row: TypeAlias = tuple[str | int | float | bytes | None, ...]

LEDGER = "default"

CALLS = """
SELECT method, key, saga_id, step, direction, attempt, begin_time, end_time, outcome, effect_made
FROM call_journal ORDER BY entry_id
"""

STOCK_GAPS = """
SELECT sku, delivered_count - free_count - (
    SELECT coalesce(sum(quantity), 0) FROM reservation WHERE reservation.sku = stock.sku AND state = 'held'
) FROM stock
"""

# The shop gives the provider a saga's id as its reference.
AUTHORIZED = "SELECT reference, authorization_id FROM authorization WHERE state <> 'voided'"
CHARGED = "SELECT reference, charge_id FROM charge WHERE charge_id NOT IN (SELECT charge_id FROM refund)"
MADE_BY_THE_PROVIDER = "SELECT idempotency_key FROM answer WHERE effect_made"


@dataclass(frozen=True, slots=True)
class Thing:
    """One kind of thing that an order leaves behind, and how to ask for those that stand.

    Attributes:
        participant: who is called for it.
        name: the kind.
        standing: asks for the saga and the id of each that stands.
        keeper: whose database it stands in, if not the participant's.
    """

    participant: str
    name: str
    standing: str
    keeper: str = ""

    @property
    def database(self) -> str:
        """The name of the database that it stands in."""
        return self.keeper or self.participant


THINGS = (
    Thing("orders", "order", "SELECT saga_id, order_id FROM customer_order WHERE state = 'placed'"),
    Thing("inventory", "reservation", "SELECT saga_id, reservation_id FROM reservation WHERE state = 'held'"),
    Thing("payments", "authorization", AUTHORIZED, keeper="cards"),
    Thing("shipping", "shipment", "SELECT saga_id, shipment_id FROM shipment"),
    Thing("payments", "charge", CHARGED, keeper="cards"),
    Thing("notifications", "letter", "SELECT saga_id, message_id FROM message"),
)
PARTICIPANTS = tuple(dict.fromkeys(thing.participant for thing in THINGS))


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceCall:
    """A row of a service's journal: one call as the service saw it. Times are ISO 8601 text in UTC."""

    participant: str
    method: str
    key: str
    saga_id: str
    step: str
    direction: str
    attempt: int
    begin_time: str
    end_time: str | None
    outcome: str | None
    effect_made: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """One thing that stands in a service's database, and the saga that made it."""

    thing: str
    saga_id: str
    thing_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Books:
    """Everything the shop's databases say.

    Attributes:
        calls: the journals of all services; those of one service in the order in which they came.
        standing: what is placed, held, authorised, charged, shipped and sent.
        stock_gaps: per article, how many pieces are neither free nor held; 0 if the shelf is right.
    """

    calls: tuple[ServiceCall, ...]
    standing: tuple[Standing, ...]
    stock_gaps: Mapping[str, int]

    def calls_of(self, saga_id: str) -> tuple[ServiceCall, ...]:
        """The calls of one saga."""
        return tuple(call for call in self.calls if call.saga_id == saga_id)

    def standing_of(self, saga_id: str, thing: str) -> tuple[str, ...]:
        """Ids of what one saga left standing of one kind."""
        return tuple(row.thing_id for row in self.standing if (row.saga_id, row.thing) == (saga_id, thing))


def read_books(data: Path) -> Books:
    """Reads the databases in the folder `data`; the services may be running meanwhile."""
    gaps = {str(sku): int(str(gap)) for sku, gap in query(data / "inventory.db", STOCK_GAPS)}
    return Books(
        calls=tuple(call for participant in PARTICIPANTS for call in read_calls(data, participant)),
        standing=tuple(row for thing in THINGS for row in _read_standing(data, thing)),
        stock_gaps=gaps,
    )


def read_calls(data: Path, participant: str) -> tuple[ServiceCall, ...]:
    """The journal of one service. What payments had done stands in the provider's books, and counts for the first
    call with its key.
    """
    calls = tuple(_call(participant, row) for row in query(data / f"{participant}.db", CALLS))
    if participant != "payments":
        return calls
    made = {key for (key,) in query(data / "cards.db", MADE_BY_THE_PROVIDER)}
    first = {call.key: call for call in reversed(calls)}.values()
    return tuple(
        replace(call, effect_made=True) if call in first and str(key_uuid(LEDGER, call.key)) in made else call
        for call in calls
    )


def query(database: Path, sql: str, parameters: Sequence[str] = ()) -> list[Row]:
    """The rows of one SELECT, read-only and on a connection of its own."""
    with closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as connection:
        rows: list[Row] = connection.execute(sql, parameters).fetchall()
    return rows


def _read_standing(data: Path, thing: Thing) -> list[Standing]:
    rows = query(data / f"{thing.database}.db", thing.standing)
    return [Standing(thing=thing.name, saga_id=str(saga_id), thing_id=str(thing_id)) for saga_id, thing_id in rows]


def _call(participant: str, row: Row) -> ServiceCall:
    method, key, saga_id, step, direction, attempt, begin_time, end_time, outcome, effect_made = row
    return ServiceCall(
        participant=participant,
        method=str(method),
        key=str(key),
        saga_id=str(saga_id),
        step=str(step),
        direction=str(direction),
        attempt=int(str(attempt)),
        begin_time=str(begin_time),
        end_time=None if end_time is None else str(end_time),
        outcome=None if outcome is None else str(outcome),
        effect_made=bool(effect_made),
    )
