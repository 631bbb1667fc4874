"""Durations and instants as people write them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from amends.cli.errors import CommandError
from amends.cli.spans import read_duration, read_instant

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("250ms", timedelta(milliseconds=250)),
        ("30s", timedelta(seconds=30)),
        ("5m", timedelta(minutes=5)),
        ("1.5h", timedelta(minutes=90)),
        ("1h30m", timedelta(minutes=90)),
        ("7d", timedelta(days=7)),
    ],
)
def test_durations(text: str, span: timedelta) -> None:
    """A number with its unit, or several."""
    assert read_duration("--stalled-for", text) == span
    assert read_instant("--since", text, NOW) == NOW - span


@pytest.mark.parametrize("text", ["", "5", "m", "5 m", "-5m", "5m!", "1e3s", "5mm", "0s", "999999999d", "2026-11-30"])
def test_what_is_no_duration(text: str) -> None:
    """It is said what may be written, with an example."""
    with pytest.raises(CommandError, match=r"--stalled-for .* is no duration: write 500ms, 30s, 5m"):
        read_duration("--stalled-for", text)


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("2026-11-30", datetime(2026, 11, 30, tzinfo=UTC)),
        ("2026-11-30T08:30", datetime(2026, 11, 30, 8, 30, tzinfo=UTC)),
        ("2026-11-30 08:30:05Z", datetime(2026, 11, 30, 8, 30, 5, tzinfo=UTC)),
        ("2026-11-30T08:30+01:00", datetime(2026, 11, 30, 8, 30, tzinfo=timezone(timedelta(hours=1)))),
        ("0s", NOW),
    ],
)
def test_instants(text: str, instant: datetime) -> None:
    """UTC unless it says otherwise; what lists print can be copied."""
    assert read_instant("--since", text, NOW) == instant


@pytest.mark.parametrize("text", ["yesterday", "30.11.2026", "2026-13-01", "12:00", "999999999d", "-2h"])
def test_what_is_no_instant(text: str) -> None:
    """It is said what may be written, with an example."""
    with pytest.raises(CommandError, match=r"--since .* is no time: write 2026-11-30, "):
        read_instant("--since", text, NOW)
