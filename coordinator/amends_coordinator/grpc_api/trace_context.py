"""The caller's W3C trace context, as it stands in a call's metadata; anything that isn't one is ignored."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}")
_TRACESTATE = re.compile(r"[a-z0-9][a-z0-9_\-*/@]{0,255}=[\x20-\x7e]*")
_TRACESTATE_LIMIT = 512
_MEMBER_LIMIT = 32


class TraceContext(NamedTuple):
    """A caller's trace context; both are "" where none was sent."""

    traceparent: str
    tracestate: str


NO_TRACE = TraceContext("", "")


def trace_context(metadata: Iterable[tuple[str, str | bytes]] | None) -> TraceContext:
    """The trace context in a call's metadata, if it is well formed."""
    parents: list[str] = []
    states: list[str] = []
    for key, value in metadata or ():
        if key == "traceparent" and isinstance(value, str):
            parents.append(value)
        elif key == "tracestate" and isinstance(value, str):
            states.append(value)
    if len(parents) != 1 or not _is_traceparent(parents[0]):
        return NO_TRACE
    return TraceContext(parents[0], _tracestate(",".join(states)))


def _is_traceparent(value: str) -> bool:
    found = _TRACEPARENT.fullmatch(value)
    return found is not None and found[1] == "00" and bool(found[2].strip("0")) and bool(found[3].strip("0"))


def _tracestate(value: str) -> str:
    members = [member.strip() for member in value.split(",") if member.strip()]
    whole = ",".join(members)
    good = len(whole) <= _TRACESTATE_LIMIT and len(members) <= _MEMBER_LIMIT
    return whole if good and all(_TRACESTATE.fullmatch(member) for member in members) else ""
