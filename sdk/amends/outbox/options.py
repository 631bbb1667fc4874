"""How a relay works, where the defaults don't suit."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import timedelta

from amends.outbox.errors import OutboxUseError


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayOptions:
    """The limits of a relay. What is left out has its default."""

    poll_interval: timedelta = timedelta(milliseconds=500)
    """How long it waits before it looks again for what another process published; it hears at once of what its own did.
    Default: 500 ms."""
    publish_timeout: timedelta = timedelta(seconds=5)
    """How long the broker may take for one event; then it is published again, as after a refusal. Default: 5 s."""
    initial_delay: timedelta = timedelta(milliseconds=100)
    """After the first refusal of an event: how long until its key is tried again. It doubles from refusal to refusal;
    half of it is fixed, half is random. Default: 100 ms."""
    maximum_delay: timedelta = timedelta(seconds=60)
    """The longest delay. Default: 60 s."""
    lease: timedelta = timedelta(seconds=10)
    """How long it stays this relay's turn if it says nothing more: another takes over so long after a process was
    killed. Longer than `publish_timeout`. Default: 10 s."""
    batch_size: int = 100
    """How many events are read at once. Default: 100."""
    keys_at_once: int = 32
    """Of how many keys events are on their way at the same time. Default: 32."""
    held_keys_limit: int = 1_000
    """How many keys may wait for their next try; with more nothing new is begun before one of them is through.
    Default: 1,000."""

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if value <= (timedelta(0) if isinstance(value, timedelta) else 0):
                raise OutboxUseError(f"RelayOptions.{each.name} is {value}: it must be more than nothing")
        if self.lease <= self.publish_timeout:
            raise OutboxUseError(
                f"RelayOptions.lease is {self.lease}, and publish_timeout is {self.publish_timeout}: "
                "a relay's turn must be longer than what one event may take"
            )
        if self.initial_delay > self.maximum_delay:
            raise OutboxUseError(
                f"RelayOptions.initial_delay {self.initial_delay} is longer than maximum_delay {self.maximum_delay}"
            )


AWAY_DELAY_CAP_S = 5.0
"""The longest wait before a broker or a database that is away is tried again."""


def away_delay_s(options: RelayOptions, fault_count: int, fraction: float) -> float:
    """How long everything waits after what is away was tried in vain so many times in a row; arguments as below."""
    return min(AWAY_DELAY_CAP_S, delay_s(options, fault_count, fraction))


def worth_a_warning(count: int) -> bool:
    """Whether the so-manieth failure in a row is told to everybody: the first, second, fourth, eighth, …"""
    return count & (count - 1) == 0


def delay_s(options: RelayOptions, refusal_count: int, fraction: float) -> float:
    """How long a key waits after so many refusals of its event.

    Args:
        options: its first and longest delay.
        refusal_count: from 1.
        fraction: from 0 to 1, random.
    """
    cap = options.maximum_delay.total_seconds()
    # Doubled 40 times, a millisecond is 34 years: no cap is longer, and no number overflows.
    full = min(cap, options.initial_delay.total_seconds() * 2.0 ** min(refusal_count - 1, 40))
    return full / 2 + full / 2 * fraction
