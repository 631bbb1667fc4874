"""The transfer saga: money from an account of one bank to an account of another, or of the same.

* **debit** can be undone: the money leaves the account, but stays with its bank, on its way, until it has arrived.
  Whatever is refused later, it goes back to where it came from.
* **credit** is the point of no return. It may be refused, so it can't be a step that is repeated until it succeeds. Nor
  can it be one that is undone: once the money is on the account its owner may have spent it, and taking it back could
  be refused for ever. So nobody ever guesses: as long as it isn't known whether the money arrived, it is asked for and
  repeated with the same key, and neither returned nor sent a second time.
* **complete** is repeated until it succeeds: the money has arrived, so its debit can't be returned any more.

Each step goes to the bank that the input names. Both serve the same service, and only one of them has the account.
"""

from __future__ import annotations

from datetime import timedelta

from amends import Saga, method
from bank.v1.bank_pb2 import (
    CompleteDebitRequest,
    CompleteDebitResponse,
    CreditRequest,
    CreditResponse,
    DebitRequest,
    DebitResponse,
    ReturnDebitRequest,
    ReturnDebitResponse,
    Transfer,
    Transferred,
)
from bank.v1.bank_pb2_grpc import AccountsServiceServicer

Debit = method(AccountsServiceServicer.Debit, DebitRequest, DebitResponse)
ReturnDebit = method(AccountsServiceServicer.ReturnDebit, ReturnDebitRequest, ReturnDebitResponse)
Credit = method(AccountsServiceServicer.Credit, CreditRequest, CreditResponse)
CompleteDebit = method(AccountsServiceServicer.CompleteDebit, CompleteDebitRequest, CompleteDebitResponse)

transfer = Saga("transfer", input=Transfer, output=Transferred, timeout=timedelta(minutes=5))
wanted = transfer.input

debit = transfer.step(
    "debit", Debit(account_id=wanted.from_account, amount=wanted.amount), participant=wanted.from_bank
)
debit.compensated_by(ReturnDebit(debit_id=debit.response.debit_id))

credit = transfer.pivot(
    "credit", Credit(account_id=wanted.to_account, amount=wanted.amount), participant=wanted.to_bank
)

complete = transfer.retriable("complete", CompleteDebit(debit_id=debit.response.debit_id), participant=wanted.from_bank)

transfer.output(Transferred)(debit_id=debit.response.debit_id, credit_id=credit.response.credit_id)
