"""What stands just now: sagas that haven't ended, open dead letters, how late the sweeper is, calls under way.

The ledger is asked now and then by the node, and what it said last is what the collector's thread reads: collecting
never waits for a database. Each answer is a mapping from a label's value ("" where there is no label) to a number;
empty: not known yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from amends_coordinator.core.ids import Instant
    from amends_coordinator.ports.clock import Clock
    from amends_coordinator.ports.ledger import Measures

MICROS = 1e6


class Gauges:
    """Written on the event loop, read in the collector's thread: every field is replaced as a whole.

    Args:
        clock: the time, for ages.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._measures: Measures | None = None
        self._last_pass: Callable[[], Instant | None] = lambda: None
        self._loads: Callable[[], Iterable[tuple[str, int, int]]] = lambda: ()

    def watch(
        self, *, last_pass: Callable[[], Instant | None], loads: Callable[[], Iterable[tuple[str, int, int]]]
    ) -> None:
        """Look at this incarnation from now on.

        Args:
            last_pass: when the sweeper's last pass ended.
            loads: participants with their calls under way and waiting.
        """
        self._measures, self._last_pass, self._loads = None, last_pass, loads

    def measured(self, measures: Measures) -> None:
        """Take what the ledger says."""
        self._measures = measures

    def running(self) -> Mapping[str, float]:
        """Sagas that haven't ended, by state in lower case."""
        measures = self._measures
        return {} if measures is None else {state.value.lower(): count for state, count in measures.unfinished.items()}

    def open_dead_letters(self) -> Mapping[str, float]:
        """How many are open."""
        measures = self._measures
        return {} if measures is None else {"": measures.open_dead_letter_count}

    def oldest_dead_letter(self) -> Mapping[str, float]:
        """Age of the oldest open one, in seconds."""
        measures = self._measures
        return {} if measures is None else {"": self._age_s(measures.oldest_open_time)}

    def oldest_compensating(self) -> Mapping[str, float]:
        """For how long the oldest saga that rolls back has done so, in seconds."""
        measures = self._measures
        return {} if measures is None else {"": self._age_s(measures.oldest_compensating_time)}

    def due_lag(self) -> Mapping[str, float]:
        """How late the latest saga is that nobody has taken up, in seconds."""
        measures = self._measures
        return {} if measures is None else {"": self._age_s(measures.oldest_due_time)}

    def last_pass_age(self) -> Mapping[str, float]:
        """How long ago the sweeper's last pass ended, in seconds."""
        last = self._last_pass()
        return {} if last is None else {"": self._age_s(last)}

    def in_flight(self) -> Mapping[str, float]:
        """Calls under way, by participant."""
        return {name: under_way for name, under_way, _ in self._loads()}

    def queued(self) -> Mapping[str, float]:
        """Calls that wait, by participant."""
        return {name: waiting for name, _, waiting in self._loads()}

    def _age_s(self, since: Instant | None) -> float:
        return 0.0 if since is None else max(0, self._clock.now() - since) / MICROS
