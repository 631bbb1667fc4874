"""A page of a list of sagas, for a bounded amount of work, whatever is in the ledger and whatever is asked for.

1. **Choose the way.** Every filter that has an index offers a way to the wanted sagas (`lanes`). One along which
   nothing is left to be asked is walked at once. Else each is probed: how many of its rows lie ahead, or, where that is
   more than `PROBE`, how densely they lie. The sparsest is walked, from where all of them have begun, so a label of
   last month's sagas is not looked for in this month's.
2. **Walk.** Rows are taken in slices and asked the remaining conditions; the lanes of the way are merged. After a slice
   in which nothing was wanted, the walk leaps to where all ways go on.
3. **Give up in time.** A page looks at `MOST_VISITS` rows at most (and at one slice of each lane). What was found until
   then is a page, shorter than asked for, and the next one goes on from there. Only filters that are each let through
   by very many sagas, and together by next to none, come to this.

Then the rows of the chosen sagas are read, and what hangs on them, with a fixed number of queries.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, NamedTuple

from amends_coordinator.core.ids import Instant, SagaId
from amends_coordinator.ledger import lanes, list_statements
from amends_coordinator.ledger.damage import ANYHOW

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sqlalchemy import Connection

    from amends_coordinator.ledger.lanes import Condition, Lane, Way
    from amends_coordinator.ports.listing import Position, SagaFilter

PROBE = 1_000
"""A way with fewer rows is walked to its end without a thought."""

MOST_IN_WINDOW = 10_000
"""So many rows that were written in a span of time are sorted at most."""

SHORT_SLICE = 20
"""Rows that are taken at once of a lane of which all are wanted, at least: the page may be full with others."""

FIRST_SLICE = 250
MOST_VISITS = 8_000


class Found(NamedTuple):
    """Where a page's sagas stand, and where the next page begins (None: this is the last)."""

    positions: list[Position]
    next: Position | None


class _Stop(NamedTuple):
    """A saga; or, if it isn't wanted, the place down to which a lane was looked at when the page's work was over."""

    position: Position
    wanted: bool


class _Bounds(NamedTuple):
    """A part of a lane: below a position (None: from the newest), down to an instant (None: to the oldest)."""

    below: Position | None
    since: Instant | None

    @property
    def values(self) -> dict[str, object]:
        """The values of its parameters."""
        found: dict[str, object] = {} if self.since is None else {"since": self.since}
        if self.below is not None:
            found["below_time"], found["below_id"] = self.below
        return found

    def leap(self, position: Position) -> _Bounds:
        """The part that begins at a position below."""
        start = (Instant(position[0] + 1), SagaId(""))
        return _Bounds(start if self.below is None else min(self.below, start), self.since)


def find(
    connection: Connection, wanted: SagaFilter, *, limit: int, before: Position | None, sound: str = ANYHOW
) -> Found:
    """Where the sagas of a page stand. `sound`: see `damage`."""
    latest = wanted.latest_created_time
    everything = _Bounds(before, wanted.created.earliest)
    bounds = everything if latest is None else everything.leap((latest, SagaId("")))
    return _Walk(connection, wanted, limit, sound).page(bounds) if wanted.possible_states else Found([], None)


class _Walk:
    """The search for one page."""

    def __init__(self, connection: Connection, wanted: SagaFilter, limit: int, sound: str) -> None:
        self._connection = connection
        self._wanted = wanted
        self._limit = limit
        self._sound = sound
        self._conditions = lanes.conditions(wanted)
        self._visits_left = MOST_VISITS

    def page(self, bounds: _Bounds) -> Found:
        """The page along the sparsest way."""
        ways = lanes.ways(self._wanted)
        if "updated" in self._conditions and self._is_window_narrow():
            ways.append(lanes.way_of_window(self._wanted))
        way = ways[0] if len(ways) == 1 else self._complete(ways, bounds)
        if way is None:
            start = self._start(ways, bounds)
            if start is None:
                return Found([], None)
            bounds = bounds.leap(start)
            way = min(ways, key=lambda each: self._cost(each, bounds, start))
        others = [each for each in ways if each is not way]
        size = min(self._limit + 1, max(SHORT_SLICE, 2 * self._limit // len(way.lanes)))
        return self._merged([self._stops(lane, bounds, size, others) for lane in way.lanes])

    def _complete(self, ways: Sequence[Way], bounds: _Bounds) -> Way | None:
        """A way along which nothing is left to be asked: there is no need to find out which one is sparse. A lane that
        would spoil that is left out if it is empty, as the one of sagas that chose their participant mostly is.
        """
        for way in ways:
            if way.is_window:
                continue
            spoiling = [lane for lane in way.lanes if self._remaining(lane)]
            if not spoiling:
                return way
            if len(spoiling) == 1 and len(way.lanes) > 1 and self._row(spoiling[0], bounds, 0) is None:
                return lanes.Way(tuple(lane for lane in way.lanes if lane is not spoiling[0]))
        return None

    def _remaining(self, lane: Lane) -> list[Condition]:
        """What is left to be asked of the sagas of a lane."""
        return [condition for name, condition in self._conditions.items() if name not in lane.covers]

    def _merged(self, stops: Sequence[Iterator[_Stop]]) -> Found:
        found: list[Position] = []
        for stop in heapq.merge(*stops, key=lambda stop: stop.position, reverse=True):
            if not stop.wanted:
                return Found(found, stop.position)
            if found and found[-1] == stop.position:
                continue  # it is in two lanes
            if len(found) == self._limit:
                return Found(found, found[-1])
            found.append(stop.position)
        return Found(found, None)

    def _is_window_narrow(self) -> bool:
        """Whether so few settled sagas were written in the wanted span of time that they can be sorted."""
        values = {**lanes.window(self._wanted), "most": MOST_IN_WINDOW + 1}
        count: int = self._connection.execute(list_statements.written_count(), values).scalar_one()
        return count <= MOST_IN_WINDOW

    def _start(self, ways: Sequence[Way], bounds: _Bounds) -> Position | None:
        """Where all ways have begun; None: one of them leads nowhere."""
        start: Position | None = None
        for way in ways:
            tops = [top for lane in way.lanes if (top := self._row(lane, bounds, 0)) is not None]
            if not tops:
                return None
            start = max(tops) if start is None else min(start, max(tops))
        return start

    def _cost(self, way: Way, bounds: _Bounds, start: Position) -> tuple[int, int]:
        """Ways that end soon come first, then what has to be sorted; of the others the one whose rows lie farthest
        apart.
        """
        ends = [self._row(lane, bounds, PROBE - 1) for lane in way.lanes]
        spans = [start[0] - end[0] for end in ends if end is not None]
        if not spans:
            return (0, 0)
        return (1, 0) if way.is_window else (2, -min(spans))

    def _row(self, lane: Lane, bounds: _Bounds, number: int) -> Position | None:
        """The position of a lane's row by its number, from 0."""
        found = self._rows(lane, bounds, size=1, skipped=number)
        return found[0] if found else None

    def _rows(self, lane: Lane, bounds: _Bounds, *, size: int, skipped: int = 0) -> list[Position]:
        """The positions of a lane's rows."""
        statement = list_statements.rows(
            lane.index, is_below=bounds.below is not None, is_since=bounds.since is not None, sound=self._sound
        )
        values = {**lane.values, **bounds.values, "size": size, "skipped": skipped}
        return [(created_time, saga_id) for created_time, saga_id in self._connection.execute(statement, values)]

    def _stops(self, lane: Lane, bounds: _Bounds, size: int, others: Sequence[Way]) -> Iterator[_Stop]:
        """What is wanted of a lane: all of it, or what fulfils the remaining conditions."""
        remaining = self._remaining(lane)
        if remaining:
            yield from self._wanted_stops(lane, bounds, remaining, others)
            return
        while True:
            positions = self._rows(lane, bounds, size=size)
            yield from (_Stop(position, wanted=True) for position in positions)
            if len(positions) < size:
                return
            bounds = bounds._replace(below=positions[-1])

    def _wanted_stops(
        self, lane: Lane, bounds: _Bounds, remaining: Sequence[Condition], others: Sequence[Way]
    ) -> Iterator[_Stop]:
        """What is wanted of a lane, slice by slice, until the page's work is done."""
        size = max(FIRST_SLICE, self._limit + 1)
        shapes = tuple(condition.shape for condition in remaining)
        asked = {name: value for condition in remaining for name, value in condition.values.items()}
        while True:
            statement = list_statements.judged(
                lane.index,
                shapes,
                is_below=bounds.below is not None,
                is_since=bounds.since is not None,
                sound=self._sound,
            )
            values = {**lane.values, **asked, **bounds.values, "size": size}
            rows = self._connection.execute(statement, values).all()
            self._visits_left -= size
            fits = [_Stop((created_time, saga_id), wanted=True) for created_time, saga_id, fits, _ in rows if fits]
            yield from fits
            if not rows or rows[-1][3] < size:
                return
            last = (rows[-1][0], rows[-1][1])
            bounds = bounds._replace(below=last)
            if not fits and others:
                start = self._start(others, bounds)
                if start is None:
                    return
                bounds = bounds.leap(start)
            if self._visits_left <= 0:
                yield _Stop(last, wanted=False)
                return
            size = max(FIRST_SLICE, min(4 * size, self._visits_left))
