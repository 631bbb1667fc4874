"""The tables of a bank, and the accounts that it begins with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import BigInteger, CheckConstraint, Column, Engine, ForeignKey, MetaData, String, Table
from sqlalchemy.dialects.sqlite import insert

if TYPE_CHECKING:
    from collections.abc import Sequence

TABLES = MetaData()

OPEN = "open"
FROZEN = "frozen"
CLOSED = "closed"

ON_ITS_WAY = "on_its_way"
COMPLETE = "complete"
RETURNED = "returned"

account = Table(
    "account",
    TABLES,
    Column("account_id", String, primary_key=True, comment="Its number."),
    Column("currency_code", String, nullable=False, comment="ISO 4217 code of its currency."),
    Column(
        "minor_units", BigInteger, CheckConstraint("minor_units >= 0"), nullable=False, comment="How much is on it."
    ),
    Column("state", String, nullable=False, comment="open, frozen or closed."),
)

debit = Table(
    "debit",
    TABLES,
    Column("debit_id", String, primary_key=True, comment="Its id."),
    Column(
        "account_id",
        String,
        ForeignKey("account.account_id"),
        nullable=False,
        comment="Where it came from.",
    ),
    Column("minor_units", BigInteger, nullable=False, comment="How much."),
    Column("state", String, nullable=False, comment="on_its_way, complete or returned."),
    Column("saga_id", String, nullable=False, comment="The saga that made it."),
)

credit = Table(
    "credit",
    TABLES,
    Column("credit_id", String, primary_key=True, comment="Its id."),
    Column("account_id", String, ForeignKey("account.account_id"), nullable=False, comment="Where it went."),
    Column("minor_units", BigInteger, nullable=False, comment="How much."),
    Column("saga_id", String, nullable=False, comment="The saga that made it."),
)


@dataclass(frozen=True, slots=True)
class NewAccount:
    """An account to open: its number, what is on it in the smallest unit of the currency, and its state."""

    account_id: str
    minor_units: int
    currency_code: str = "EUR"
    state: str = OPEN

    @classmethod
    def parse(cls, text: str) -> NewAccount:
        """Reads `NUMBER:MINOR_UNITS[:STATE]`, for example `alice:10000` or `bob:0:frozen`.

        Raises:
            ValueError: the text has another shape.
        """
        number, _, rest = text.partition(":")
        amount, _, state = rest.partition(":")
        if not number or not amount.isdecimal() or (state or OPEN) not in (OPEN, FROZEN, CLOSED):
            raise ValueError(f"{text!r} is no account: write NUMBER:MINOR_UNITS or NUMBER:MINOR_UNITS:frozen")
        return cls(number, int(amount), state=state or OPEN)


def open_accounts(engine: Engine, accounts: Sequence[NewAccount]) -> None:
    """Opens accounts that were never there; what is there already stays as it is."""
    rows = [
        {
            "account_id": each.account_id,
            "currency_code": each.currency_code,
            "minor_units": each.minor_units,
            "state": each.state,
        }
        for each in accounts
    ]
    if rows:
        with engine.begin() as connection:
            connection.execute(insert(account).on_conflict_do_nothing(), rows)
