"""What a barrier raises: how it was used wrongly, and what it can't know."""

from __future__ import annotations

from amends.errors import AmendsError


class BarrierUseError(AmendsError):
    """The barrier can't be used like this; the text says which line to change. The call ends as unknown."""


class Unclear(Exception):
    """Within the barrier only: it can't be said now whether the key ran, or will. Answered with `ABORTED`."""
