"""Two banks as a world of the fault matrix: the bank's real service twice, and money that is never gone."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from amends import Committed
from amends.testing import FaultMatrix
from bank.saga import transfer
from bank.service import Accounts
from bank.tables import TABLES, NewAccount, open_accounts
from bank.v1.bank_pb2 import Money, Transfer
from hosting.database import open_database
from hosting.serving import database_path
from shop.demo.books import query
from tests.faults.folders import new_folder

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType
    from typing import Self

    from amends.testing import End
    from hosting.database import Database

ACCOUNTS = {"bank-a": NewAccount("alice", 10_000), "bank-b": NewAccount("bob", 2_000)}
AMOUNT = 2_500

RENT = Transfer(
    from_bank="bank-a",
    from_account="alice",
    to_bank="bank-b",
    to_account="bob",
    amount=Money(currency_code="EUR", minor_units=AMOUNT),
)


class BankWorld:
    """Two banks with an account each."""

    def __init__(self) -> None:
        self._left = AsyncExitStack()
        self._data = Path()

    async def __aenter__(self) -> Self:
        self._data = Path(self._left.enter_context(new_folder()))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._left.aclose()

    def participants(self) -> Mapping[str, Sequence[object]]:
        """The banks by their names."""
        return {name: (self.servicer(self._open(name)),) for name in ACCOUNTS}

    def servicer(self, database: Database) -> object:
        """What answers the calls of one bank."""
        return Accounts(database.sessions)

    async def check(self, end: End) -> None:
        """What is true of the banks, whatever went wrong: the money is with the one or with the other."""
        moved = AMOUNT if isinstance(end, Committed) else 0
        for bank, should_have in (("bank-a", 10_000 - moved), ("bank-b", 2_000 + moved)):
            has = self._number(bank, "SELECT sum(minor_units) FROM account")
            assert has == should_have, f"{has} are on the account of {bank}, not {should_have}"
        on_its_way = self._number("bank-a", "SELECT count(*) FROM debit WHERE state = 'on_its_way'")
        assert on_its_way == 0, f"{on_its_way} debits are still on their way"
        credited = self._number("bank-b", "SELECT count(*) FROM credit")
        assert credited == (1 if moved else 0), f"money was credited {credited} times"

    def _open(self, name: str) -> Database:
        database = open_database(database_path(self._data, name), TABLES)
        self._left.push_async_callback(database.close)
        open_accounts(database.engine, (ACCOUNTS[name],))
        return database

    def _number(self, name: str, asked: str) -> int:
        ((number,),) = query(database_path(self._data, name), asked)
        assert isinstance(number, int)
        return number


TRANSFER = FaultMatrix(transfer, input=RENT, world=BankWorld)
