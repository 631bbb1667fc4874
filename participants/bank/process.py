"""Starts a bank as a process: `python -m bank.process bank-a --coordinator HOST:PORT --data DIR --account alice:10000`.

The name is the participant's: run it twice under two names, and there are two banks, each with a database of its own.
"""

from __future__ import annotations

import argparse
import asyncio
from functools import partial
from typing import TYPE_CHECKING

from bank.service import Accounts
from bank.tables import TABLES, NewAccount, open_accounts
from hosting.serving import Service, add_place, place_of, run

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> None:
    """Reads the command line and serves."""
    parser = argparse.ArgumentParser(prog="python -m bank.process", description="Runs a bank.")
    parser.add_argument("name", help="name of the bank as a participant, for example bank-a")
    add_place(parser)
    parser.add_argument(
        "--account",
        type=_account,
        action="append",
        default=[],
        metavar="NUMBER:MINOR_UNITS[:STATE]",
        help="open this account if it isn't there yet; may be repeated",
    )
    chosen = parser.parse_args(arguments)
    prepare = partial(open_accounts, accounts=chosen.account)
    service = Service(TABLES, lambda database: Accounts(database.sessions), prepare)
    asyncio.run(run(chosen.name, service, place_of(chosen)))


def _account(text: str) -> NewAccount:
    try:
        return NewAccount.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


if __name__ == "__main__":
    main()
