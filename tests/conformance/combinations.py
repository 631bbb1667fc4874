"""Which combinations of database and session a suite runs on: some with every test run, all with `make conformance`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def combinations(every: Sequence[str], *, short: Sequence[str]) -> Sequence[str]:
    """All of them where EVERY_RIG=1 asks for them, else the short choice: it has each database, and each kind once."""
    return every if os.environ.get("EVERY_RIG") == "1" else short
