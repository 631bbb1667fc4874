"""What holds for every timeline: it is played on both databases, and nobody's log has a traceback."""

from __future__ import annotations

from tests.scenarios.conftest import no_traceback
from tests.timelines.databases import ledger_url

__all__ = ["ledger_url", "no_traceback"]
