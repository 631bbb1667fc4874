"""The real clock and the real source of new ids: the one place that asks the machine for time and randomness."""

from __future__ import annotations

import random
import secrets
import time
from uuid import UUID

from amends_coordinator.core.ids import Instant, SagaId

_ELAPSED_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_RANDOM_BITS = 74
_COUNTER_BITS = 18
"""A UUIDv7 has 74 bits beside its time, version and variant. Those made within one millisecond are kept in order by
counting up, so the random part leaves the highest bit free for that."""


class SystemClock:
    """The machine's clock and Python's random numbers."""

    def now(self) -> Instant:
        """The time, in microseconds since 1970-01-01T00:00:00Z."""
        return Instant(time.time_ns() // 1_000)

    def elapsed_s(self) -> float:
        """Seconds by a clock that nobody sets and that counts sleep, where the machine has one (Linux)."""
        return time.clock_gettime(_ELAPSED_CLOCK)

    def fraction(self) -> float:
        """A random number from 0 (included) to 1 (excluded), for jitter."""
        return random.random()


class SystemIds:
    """Ids from the machine's clock and its secure randomness. To be used from one thread."""

    def __init__(self) -> None:
        self._last_ms = 0
        self._last_random = 0
        self._random = random.Random(secrets.randbits(256))

    def saga_id(self) -> SagaId:
        """A new UUIDv7: ids that are made later sort later, within one process also those of one millisecond."""
        now_ms = time.time_ns() // 1_000_000
        if now_ms > self._last_ms:
            self._last_ms, self._last_random = now_ms, secrets.randbits(_RANDOM_BITS - 1)
        else:  # the same millisecond, or a clock that was set back: go on counting from the last id
            self._last_random += 1 + secrets.randbits(_COUNTER_BITS)
        return SagaId(str(_uuid7(self._last_ms, self._last_random)))

    def token(self) -> str:
        """A new random token of 32 hexadecimal digits."""
        return f"{self._random.getrandbits(128):032x}"


def _uuid7(time_ms: int, rest: int) -> UUID:
    """RFC 9562: 48 bits of time, version 7, 12 bits, variant 2, 62 bits."""
    high, low = rest >> 62 & 0xFFF, rest & ((1 << 62) - 1)
    return UUID(int=time_ms << 80 | 0x7 << 76 | high << 64 | 0b10 << 62 | low)
