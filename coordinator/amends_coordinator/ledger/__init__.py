"""The ledger port in memory, on SQLite and on PostgreSQL; `open_ledger` finds the one that a URL means.

All SQL there is, and the threads that run it. It decides nothing about sagas but who wrote first.
"""

from __future__ import annotations

from amends_coordinator.ledger.factory import open_ledger

__all__ = ["open_ledger"]
