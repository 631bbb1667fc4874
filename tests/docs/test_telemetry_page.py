"""docs/telemetry.md names what a trace really has, and nothing else."""

from __future__ import annotations

import re

from amends_coordinator.telemetry import names
from tests.docs.pages import CHECKOUT

PAGE = CHECKOUT / "docs" / "telemetry.md"


def test_the_page_has_every_name_of_a_trace() -> None:
    """Attributes and events stand there, and no name of ours that isn't one; the table of metrics is drawn."""
    ours = {
        text
        for name, text in vars(names).items()
        if name.startswith(("TRACE_", "EVENT_", "RPC_", "ERROR_TYPE", "METRIC_")) and isinstance(text, str)
    }
    told = set(re.findall(r"`((?:amends|rpc|error)\.[a-z_.]+)`", PAGE.read_text("utf-8")))
    assert told == ours
