"""The time axis: to scale, cut where something would vanish, and never the wrong way round."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amends.cli.axis import Axis, axis

HOUR_US = 3_600_000_000


def columns(drawn: Axis) -> list[int]:
    """Where its instants are."""
    return [drawn.column(instant) for instant in drawn.instants]


def test_it_is_to_scale() -> None:
    """Half the time is half the way; what is outside is at the edge."""
    drawn = axis([1_000, 5_000, 9_000], 40)
    assert (columns(drawn), drawn.cuts) == ([0, 20, 39], frozenset())
    assert (drawn.column(3_000), drawn.column(0), drawn.column(99_000)) == (10, 0, 39)


def test_hours_beside_milliseconds_are_cut() -> None:
    """Calls of milliseconds stay apart although hours lie between them, and the cut has its mark and its tick."""
    drawn = axis([0, 5_000, 9_000, HOUR_US, HOUR_US + 4_000, HOUR_US + 8_000], 48)
    assert len(set(columns(drawn))) == len(drawn.instants)
    assert drawn.cuts == {2}
    assert drawn.column(9_000) < min(drawn.cut_columns()) < drawn.column(HOUR_US)
    assert [tick.label for tick in drawn.ticks()] == ["0", "1 h 0 min"]


def test_bursts_of_calls_that_are_days_and_hours_apart() -> None:
    """As many cuts are made as bring calls to light; their ticks are in order."""
    begins = (0, HOUR_US, 60 * HOUR_US, 61 * HOUR_US)
    drawn = axis([begin + 5_000 * call for begin in begins for call in range(4)], 60)
    assert drawn.cuts == {3, 7, 11}
    assert len(set(columns(drawn))) == 16
    assert [tick.label for tick in drawn.ticks()] == ["0", "1 h 0 min", "60 h 0 min", "61 h 0 min"]


def test_a_long_call_beside_two_short_ones_stays_to_scale() -> None:
    """Where time went is seen as long as little vanishes."""
    assert not axis([0, 1_000_000, 1_005_000, 1_010_000], 60).cuts


def test_ticks_are_round_and_counted_from_the_beginning() -> None:
    """An uncut axis has ticks at round times."""
    assert [tick.label for tick in axis([7, 1_420_007], 60).ticks()] == ["0", "500 ms", "1.00 s"]


@pytest.mark.parametrize("instants", [[5], [5, 5], [5, 6]])
def test_next_to_no_time(instants: list[int]) -> None:
    """A saga that has only just begun can be drawn."""
    assert axis(instants, 20).column(5) == 0
    assert len(list(axis(instants, 20).ticks())) == 1


@given(instants=st.sets(st.integers(0, 10**15), min_size=1, max_size=60), width=st.integers(20, 180))
def test_order_and_lengths_are_kept(instants: set[int], width: int) -> None:
    """Whatever happened when: what is later is never further left, and what is longer is never drawn shorter."""
    drawn = axis(instants, width)
    at = columns(drawn)
    assert at == sorted(at)
    assert 0 <= at[0] <= at[-1] < width
    lengths = sorted(
        (end - begin, after - before)
        for (begin, end), (before, after) in zip(pairwise(drawn.instants), pairwise(drawn.drawn), strict=True)
    )
    assert [shown for _, shown in lengths] == sorted(shown for _, shown in lengths)
    assert all(0 <= column < width for column in drawn.cut_columns())
