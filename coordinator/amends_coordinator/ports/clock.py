"""The ports to time, randomness and new ids. Nothing else in the coordinator asks for them."""

from __future__ import annotations

from typing import Protocol

from amends_coordinator.core.ids import Instant, SagaId


class Clock(Protocol):
    """Tells the time and random fractions."""

    def now(self) -> Instant:
        """The time, in microseconds since 1970-01-01T00:00:00Z."""
        ...

    def elapsed_s(self) -> float:
        """Seconds since some moment, by a clock that nobody sets and that counts the time in which the machine
        sleeps.
        """
        ...

    def fraction(self) -> float:
        """A random number from 0 (included) to 1 (excluded), for jitter."""
        ...


class Ids(Protocol):
    """Makes ids that nobody else makes."""

    def saga_id(self) -> SagaId:
        """A new UUIDv7: ids that are made later sort later."""
        ...

    def token(self) -> str:
        """A new random token of 32 hexadecimal digits."""
        ...
