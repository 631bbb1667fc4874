"""Reads the durations and instants that people write on the command line."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from amends.cli.errors import CommandError
from amends.cli.formats import cut

UNITS = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
PART = re.compile(r"(?P<count>\d{1,9}(?:\.\d{1,6})?)(?P<unit>ms|[smhd])")
WHOLE = re.compile(rf"(?:{PART.pattern.replace('?P<count>', '?:').replace('?P<unit>', '?:')})+")
LONGEST = timedelta(days=36_500)


def read_duration(option: str, text: str) -> timedelta:
    """A duration such as "90s", "5m" or "1h30m".

    Raises:
        CommandError: it is none, or 0.
    """
    span = _duration(text)
    if not span or span > LONGEST:
        raise CommandError(f"{option} {cut(text)!r} is no duration: write 500ms, 30s, 5m, 2h, 7d or 1h30m.")
    return span


def read_instant(option: str, text: str, now: datetime) -> datetime:
    """An instant: as in "2026-11-30", "2026-11-30T08:30" or "2026-11-30T08:30+01:00" (UTC where it doesn't say), or how
    long before `now` it is, such as "2h".

    Raises:
        CommandError: it is neither.
    """
    if (ago := _duration(text)) is not None and ago <= LONGEST:
        return now - ago
    try:
        written = datetime.fromisoformat(text)
    except ValueError:
        raise CommandError(
            f"{option} {cut(text)!r} is no time: write 2026-11-30, 2026-11-30T08:30 (UTC), or how long ago it was: 2h."
        ) from None
    return written if written.tzinfo is not None else written.replace(tzinfo=UTC)


def _duration(text: str) -> timedelta | None:
    if WHOLE.fullmatch(text) is None:
        return None
    try:
        return sum(
            (timedelta(**{UNITS[part["unit"]]: float(part["count"])}) for part in PART.finditer(text)), timedelta()
        )
    except OverflowError:
        return None
