"""Turns single values into words for people: instants, durations, enum values, texts that others wrote."""

from __future__ import annotations

from datetime import UTC, datetime

from google.protobuf.descriptor import EnumDescriptor
from google.protobuf.timestamp_pb2 import Timestamp

LONGEST_TEXT = 160
LONGEST_NAME = 64


def enum_word(kind: EnumDescriptor, number: int) -> str:
    """An enum value's name without its prefix; the number if this release doesn't know the value."""
    value = kind.values_by_number.get(number)
    return value.name.removeprefix(f"{kind.name.upper()}_") if value else str(number)


def micros(time: Timestamp) -> int:
    """An instant in microseconds since 1970."""
    return time.seconds * 1_000_000 + time.nanos // 1_000


def instant(time: Timestamp) -> str:
    """An instant to the second, in UTC."""
    try:
        return datetime.fromtimestamp(time.seconds, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return f"{time.seconds} s after 1970"


def duration(span_us: int) -> str:
    """A duration in the unit that suits its size."""
    span_ms = round(span_us / 1_000)
    if abs(span_ms) < 1_000:
        return f"{span_ms} ms"
    if abs(span_ms) < 60_000:
        return f"{span_ms / 1_000:.2f} s"
    minutes, seconds = divmod(round(span_ms / 1_000), 60)
    if minutes < 60:
        return f"{minutes} min {seconds} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min"


def cut(text: str, longest: int = LONGEST_TEXT) -> str:
    """The text on one line without control characters, cut to `longest` characters."""
    line = "".join(char if char.isprintable() else _escaped(char) for char in text[: longest + 1])
    return line if len(line) <= longest else line[: longest - 3] + "..."


def _escaped(char: str) -> str:
    return " " if char.isspace() else char.encode("unicode_escape", "backslashreplace").decode("ascii")
