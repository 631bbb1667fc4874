"""What the card provider does: authorises, voids, captures, refunds, and finds by key; each idempotency key once.

The rules of its keys, as such providers have them:

* The same key with the same request gets the same answer again, a refusal too, and nothing more is done.
* The same key with another request is a mistake of the merchant (409, `key_reused`).
* An authorisation can be voided by the key it was asked for with. A key that was never seen is sealed by that: whoever
  comes with it later is refused (410, `key_sealed`), so that a request that was held up on its way can't arrive after
  its own undoing.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from shop.cards.books import CAPTURED, STANDING, VOIDED, Books, new_id

if TYPE_CHECKING:
    from collections.abc import Mapping
    from sqlite3 import Connection

Fields: TypeAlias = "Mapping[str, object]"

CARD_LIMIT_MINOR_UNITS = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What goes back: an HTTP status and the fields of a JSON object.

    Attributes:
        status: as HTTP has it.
        fields: the object; a refusal has `code` (for programs) and `message` (for people).
        repeated: it was answered before, and nothing was done this time.
        effect_made: money was set aside, given back or taken for it.
    """

    status: int
    fields: Fields
    repeated: bool = False
    effect_made: bool = False


class RefusedError(Exception):
    """The request is refused with a status, a code for programs and a message for people."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.reply = Reply(status=status, fields={"code": code, "message": message})


class CardProvider:
    """Answers requests, whichever way they come; safe to use from several threads.

    Args:
        books: what it did, also before.
        card_limit_minor_units: a card is declined above this.
    """

    def __init__(self, books: Books, *, card_limit_minor_units: int = CARD_LIMIT_MINOR_UNITS) -> None:
        self._books, self._card_limit = books, card_limit_minor_units
        self._operations = {
            "authorizations": self._authorize,
            "voids": _void,
            "captures": _capture,
            "refunds": _refund,
        }

    def post(self, what: str, fields: Fields, *, key: str) -> Reply:
        """Make one of "authorizations", "voids", "captures" and "refunds", once per key."""
        operation = self._operations.get(what)
        if operation is None:
            return RefusedError(404, "no_such_thing", f"there are no {what}: {', '.join(self._operations)}").reply
        if not key:
            return RefusedError(400, "key_missing", "send the header Idempotency-Key with every POST").reply
        asked = _hash(what, fields)
        with self._books.transaction() as connection:
            known = _recall(connection, key, asked)
            if known is not None:
                return known
            try:
                reply = operation(connection, fields, key)
            except RefusedError as no:
                reply = no.reply
            if reply.status != 400:
                _remember(connection, key, asked, reply)
        return reply

    def find(self, key: str) -> Reply:
        """The authorisation that was made with this key. 404: there is none, yet."""
        with self._books.transaction() as connection:
            row = connection.execute(
                "SELECT authorization_id, state FROM authorization WHERE idempotency_key = ?", [key]
            ).fetchone()
        if row is None:
            return RefusedError(404, "not_found", f"nothing was authorised with key {key}").reply
        return Reply(status=200, fields={"authorization_id": row[0], "state": row[1]})

    def _authorize(self, connection: Connection, fields: Fields, key: str) -> Reply:
        minor_units = _number(fields, "minor_units")
        if minor_units < 1:
            raise RefusedError(402, "amount_invalid", f"{minor_units} is no amount that could be set aside")
        if minor_units > self._card_limit:
            raise RefusedError(402, "card_declined", "card declined: the amount is over the card's limit")
        authorization_id = new_id("auth")
        names = ("customer_id", "currency_code", "statement_text", "reference")
        customer_id, currency_code, statement_text, reference = (_text(fields, name) for name in names)
        connection.execute(
            "INSERT INTO authorization VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            [authorization_id, key, customer_id, minor_units, currency_code, statement_text, reference, STANDING],
        )
        return _done({"authorization_id": authorization_id})


def _done(fields: Fields, *, effect_made: bool = True) -> Reply:
    return Reply(status=201, fields=fields, effect_made=effect_made)


def _void(connection: Connection, fields: Fields, _: str) -> Reply:
    """By `authorization_id`, or else by `authorization_key`."""
    by_id, by_key = _text(fields, "authorization_id"), _text(fields, "authorization_key")
    if not by_id and not by_key:
        raise RefusedError(400, "bad_request", "say which authorization_id or authorization_key to void")
    row = connection.execute(
        "SELECT authorization_id, state FROM authorization WHERE authorization_id = ? OR (? = '' AND "
        "idempotency_key = ?)",
        [by_id, by_id, by_key],
    ).fetchone()
    if row is None:
        if by_key:
            _seal(connection, by_key)
        return _done({"authorization_id": "", "state": "nothing"}, effect_made=False)
    authorization_id, state = row
    if state == CAPTURED:
        raise RefusedError(
            409, "already_captured", f"the money of {authorization_id} was taken already: refund its charge"
        )
    connection.execute("UPDATE authorization SET state = ? WHERE authorization_id = ?", [VOIDED, authorization_id])
    return _done({"authorization_id": authorization_id, "state": VOIDED}, effect_made=state != VOIDED)


def _capture(connection: Connection, fields: Fields, _: str) -> Reply:
    authorization_id, charge_id = _text(fields, "authorization_id"), new_id("charge")
    taken = connection.execute(
        "UPDATE authorization SET state = ? WHERE authorization_id = ? AND state = ?",
        [CAPTURED, authorization_id, STANDING],
    )
    if taken.rowcount == 0:
        raise RefusedError(409, "not_authorized", f"no authorisation {authorization_id!r} stands")
    connection.execute("INSERT INTO charge VALUES (?, ?, ?)", [charge_id, authorization_id, _text(fields, "reference")])
    return _done({"charge_id": charge_id})


def _refund(connection: Connection, fields: Fields, _: str) -> Reply:
    charge_id, refund_id = _text(fields, "charge_id"), new_id("refund")
    known = connection.execute("SELECT 1 FROM charge WHERE charge_id = ?", [charge_id]).fetchone()
    if known is None:
        raise RefusedError(409, "not_charged", f"there is no charge {charge_id!r}")
    given = connection.execute("SELECT refund_id FROM refund WHERE charge_id = ?", [charge_id]).fetchone()
    if given is not None:
        raise RefusedError(409, "already_refunded", f"the money of {charge_id} was given back already: {given[0]}")
    connection.execute("INSERT INTO refund VALUES (?, ?, ?)", [refund_id, charge_id, _text(fields, "reference")])
    return _done({"refund_id": refund_id})


def _recall(connection: Connection, key: str, asked: bytes) -> Reply | None:
    row = connection.execute(
        "SELECT request_hash, status, body FROM answer WHERE idempotency_key = ?", [key]
    ).fetchone()
    if row is None:
        return None
    request_hash, status, body = row
    if request_hash is not None and request_hash != asked:
        return RefusedError(409, "key_reused", f"key {key} came with another request before: choose a new one").reply
    return Reply(status=status, fields=json.loads(body), repeated=True)


def _remember(connection: Connection, key: str, asked: bytes | None, reply: Reply) -> None:
    connection.execute(
        "INSERT INTO answer VALUES (?, ?, ?, ?, ?)",
        [key, asked, reply.status, json.dumps(dict(reply.fields)), reply.effect_made],
    )


def _seal(connection: Connection, key: str) -> None:
    known = connection.execute("SELECT 1 FROM answer WHERE idempotency_key = ?", [key]).fetchone()
    if known is None:
        sealed = RefusedError(410, "key_sealed", f"key {key} was voided before it came, and nothing is done for it")
        _remember(connection, key, None, sealed.reply)


def _hash(what: str, fields: Fields) -> bytes:
    return hashlib.sha256(json.dumps([what, dict(fields)], sort_keys=True).encode()).digest()


def _text(fields: Fields, name: str) -> str:
    value = fields.get(name, "")
    if not isinstance(value, str):
        raise RefusedError(400, "bad_request", f"{name} must be text")
    return value


def _number(fields: Fields, name: str) -> int:
    value = fields.get(name)
    if not isinstance(value, int):
        raise RefusedError(400, "bad_request", f"{name} must be a whole number")
    return value
