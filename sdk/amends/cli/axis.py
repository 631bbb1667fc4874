"""A time axis for a saga's bars: which column of the terminal an instant belongs to.

A saga's attempts take milliseconds, and between two of them may lie hours. The axis is to scale all the same, so that
one sees where the time went. A logarithm would draw the same call ever shorter the later it was made, and a minute
little longer than a second.

What is to scale can vanish, though, beside what is a thousand times longer. So the axis may be cut: time is divided
into stretches by the instants at which something happens, and the longest of them are drawn only twice as long as the
longest of the others, with a mark. What is longer never looks shorter, and the lengths stand beside the bars. Each cut
has to be worth it: two more stretches have to come out by it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from amends.cli.formats import duration

MOST_CUTS = 8
WORTH_A_CUT = 2.0
CLEAR = 3.0
"""Columns that make a stretch clear to see; one with fewer counts in part."""
ROOM_OF_A_TICK = 16
"""An uncut axis has about one tick in so many columns."""
MS, S, MINUTE, HOUR, DAY = 1_000, 1_000_000, 60_000_000, 3_600_000_000, 86_400_000_000
TICKS_US = (
    *(count * MS for count in (1, 2, 5, 10, 20, 50, 100, 200, 500)),
    *(count * S for count in (1, 2, 5, 10, 20, 30)),
    *(count * MINUTE for count in (1, 2, 5, 10, 20, 30)),
    *(count * HOUR for count in (1, 2, 6, 12)),
    *(count * DAY for count in (1, 2, 7, 14, 30, 90, 365)),
)


@dataclass(frozen=True, slots=True)
class Tick:
    """A label of the axis, and the column at which it points."""

    column: int
    label: str


@dataclass(frozen=True, slots=True)
class Axis:
    """Instants in microseconds, and where each of them is drawn."""

    width: int
    instants: tuple[int, ...]
    """When something happens, in order."""
    drawn: tuple[float, ...]
    """For each instant, how long what lies before it is drawn, in no unit."""
    cuts: frozenset[int]
    """Which stretches are cut, by the index of the instant at which they begin."""

    def column(self, instant: int) -> int:
        """The column of an instant, from 0; what lies outside is at the edge."""
        index = max(0, min(bisect_right(self.instants, instant), len(self.instants) - 1) - 1)
        begin, end = self.instants[index], self.instants[min(index + 1, len(self.instants) - 1)]
        share = min(1.0, max(0.0, (instant - begin) / (end - begin))) if end > begin else 0.0
        upto = self.drawn[min(index + 1, len(self.drawn) - 1)]
        at = self.drawn[index] + share * (upto - self.drawn[index])
        return min(self.width - 1, int(self.width * at / (self.drawn[-1] or 1)))

    def cut_columns(self) -> frozenset[int]:
        """Where the marks of the cuts are: in the middle of what is left of each cut stretch."""
        return frozenset(
            (self.column(self.instants[index]) + self.column(self.instants[index + 1])) // 2 for index in self.cuts
        )

    def ticks(self) -> Iterator[Tick]:
        """What to write on the axis, counted from its beginning, from left to right without the end."""
        begin, end = self.instants[0], self.instants[-1]
        yield Tick(0, "0")
        if self.cuts:
            for index in sorted(self.cuts):
                after = self.instants[index + 1]
                yield Tick(self.column(after), duration(after - begin))
            return
        most = max(1, self.width // ROOM_OF_A_TICK)
        step = next((step for step in TICKS_US if (end - begin) / step <= most), TICKS_US[-1])
        for offset in range(step, end - begin, step):
            yield Tick(self.column(begin + offset), duration(offset))


def axis(instants: Iterable[int], width: int) -> Axis:
    """The axis for what happens at these instants, at least one, `width` columns wide."""
    ordered = sorted(set(instants))
    lengths = [end - begin for begin, end in pairwise(ordered)]
    cap, cuts, clear = max(lengths, default=0), 0, _clear(lengths, width)
    by_length = sorted(lengths, reverse=True)
    for tried, longest_uncut in enumerate(by_length[1 : MOST_CUTS + 1], start=1):
        shortened = [min(length, 2 * longest_uncut) for length in lengths]
        if _clear(shortened, width) >= clear + WORTH_A_CUT * (tried - cuts):
            cap, cuts, clear = 2 * longest_uncut, tried, _clear(shortened, width)
    return Axis(
        width=width,
        instants=tuple(ordered),
        drawn=tuple(accumulate((min(length, cap) for length in lengths), initial=0)),
        cuts=frozenset(index for index, length in enumerate(lengths) if length > cap),
    )


def _clear(lengths: Sequence[int], width: int) -> float:
    """How many stretches are clear to see."""
    total = sum(lengths)
    return sum(min(1.0, length * width / total / CLEAR) for length in lengths) if total else 0.0
