"""Adapters of the ledger port. `open_ledger` finds the one that a URL means."""

from __future__ import annotations

from amends_coordinator.ledger.factory import open_ledger

__all__ = ["open_ledger"]
