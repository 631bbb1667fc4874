"""The real clock and ids: what the ports promise of them."""

from __future__ import annotations

import time
from uuid import UUID

from amends_coordinator.system import SystemClock, SystemIds


def test_saga_ids_sort_as_they_are_made() -> None:
    """UUIDv7: ids that are made later sort later, also within one millisecond."""
    ids = SystemIds()
    made = [ids.saga_id() for _ in range(5_000)]
    assert made == sorted(made)
    assert len(set(made)) == len(made)
    assert {(UUID(each).version, UUID(each).variant) for each in made} == {(7, UUID(int=0x8 << 60).variant)}
    milliseconds = UUID(made[-1]).int >> 80
    assert abs(milliseconds - time.time_ns() // 1_000_000) < 60_000


def test_tokens() -> None:
    """Tokens are 32 hexadecimal digits, each another."""
    ids = SystemIds()
    assert len({ids.token() for _ in range(100)}) == 100
    assert set(ids.token()) <= set("0123456789abcdef")
    assert len(ids.token()) == 32


def test_clock() -> None:
    """Microseconds since 1970, and fractions from 0 to 1."""
    clock = SystemClock()
    assert abs(clock.now() - time.time() * 1e6) < 60e6
    assert all(0 <= clock.fraction() < 1 for _ in range(100))
