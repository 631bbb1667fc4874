"""Draws what the demo prints at its end: the comparison of claims and books, the ledger's rows, the last line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from shop.demo.books import THINGS
from shop.demo.claims import COMMITTED, COMPENSATED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shop.demo.audit import Finding
    from shop.demo.books import Books, Row
    from shop.demo.claims import Claim

STYLES = {COMMITTED: "green", COMPENSATED: "yellow"}


def comparison(claims: Sequence[Claim], books: Books, findings: Sequence[Finding]) -> Table:
    """What each saga claims beside what stands in the shop's databases."""
    table = Table(title="what the sagas claim, and what stands in the shop's databases", title_justify="left")
    table.add_column("saga")
    table.add_column("claims")
    for thing in THINGS:
        table.add_column(thing.name, justify="right")
    table.add_column("calls", justify="right")
    table.add_column("effects", justify="right")
    table.add_column("consistent")
    wrong = {finding.subject for finding in findings}
    for claim in claims:
        calls = books.calls_of(claim.saga_id)
        table.add_row(
            claim.saga_id,
            Text(claim.state, style=STYLES.get(claim.state, "red")),
            *(str(len(books.standing_of(claim.saga_id, thing.name))) for thing in THINGS),
            str(len(calls)),
            str(sum(call.effect_made for call in calls)),
            Text("no", style="bold red") if claim.saga_id in wrong else Text("yes", style="green"),
        )
    return table


def rows_as_table(columns: Sequence[str], rows: Sequence[Row]) -> Table:
    """The rows of a query as they came."""
    table = Table()
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*("NULL" if value is None else str(value) for value in row))
    return table


def last_line(claims: Sequence[Claim], findings: Sequence[Finding]) -> str:
    """The demo's verdict; `inconsistent` counts the sagas (or other subjects) with at least one contradiction."""
    states = [claim.state for claim in claims]
    return (
        f"demo: sagas={len(claims)} committed={states.count(COMMITTED)} compensated={states.count(COMPENSATED)} "
        f"inconsistent={len({finding.subject for finding in findings})}"
    )
