"""A page of a list of sagas, for a bounded amount of work, whatever is in the ledger and whatever is asked for.

1. **Choose the way.** Every filter that has an index offers a way to the wanted sagas (`lanes`). Each is probed: how
   many of its rows lie ahead, or, where that is more than `PROBE`, how densely they lie. The sparsest is walked. The
   walk begins where all of them have begun, so a label of last month's sagas is not looked for in this month's.
2. **Walk.** Rows are taken in slices and asked the remaining conditions; the lanes of the way are merged. After a slice
   in which nothing was wanted, the walk leaps to where all ways go on.
3. **Give up in time.** A page looks at `MOST_VISITS` rows at most (and at one slice of each lane). What was found until
   then is a page, shorter than asked for, and the next one goes on from there. Only filters that are each let through
   by very many sagas, and together by next to none, come to this.

Then the rows of the chosen sagas are read, and what hangs on them, with a fixed number of queries.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import and_, func, literal, or_, select, tuple_

from amends_coordinator.core.ids import Instant, SagaId
from amends_coordinator.ledger import lanes, schema
from amends_coordinator.ledger.instants import InstantType

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sqlalchemy import ColumnElement, Connection, FromClause, Select

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

_READ_BY_CONDITIONS = (
    "state", "definition_name", "definition_version", "attention_required", "unproven", "compensations_owed",
    "updated_time", "progress_time", "due_time",
)  # fmt: skip
"""What conditions read of a saga's row."""


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

    def leap(self, position: Position) -> _Bounds:
        """The part that begins at a position below."""
        start = (Instant(position[0] + 1), SagaId(""))
        return _Bounds(start if self.below is None else min(self.below, start), self.since)


def find(connection: Connection, wanted: SagaFilter, *, limit: int, before: Position | None) -> Found:
    """Where the sagas of a page stand."""
    latest = wanted.latest_created_time
    everything = _Bounds(before, wanted.created.earliest)
    bounds = everything if latest is None else everything.leap((latest, SagaId("")))
    return _Walk(connection, wanted, limit).page(bounds) if wanted.possible_states else Found([], None)


class _Walk:
    """The search for one page."""

    def __init__(self, connection: Connection, wanted: SagaFilter, limit: int) -> None:
        self._connection = connection
        self._wanted = wanted
        self._limit = limit
        self._conditions = lanes.conditions(wanted)
        self._visits_left = MOST_VISITS

    def page(self, bounds: _Bounds) -> Found:
        """The page along the sparsest way."""
        ways = lanes.ways(self._wanted)
        if "updated" in self._conditions and self._is_window_narrow():
            ways.append(lanes.way_of_window(self._wanted))
        way = ways[0]
        if len(ways) > 1:
            start = self._start(ways, bounds)
            if start is None:
                return Found([], None)
            bounds = bounds.leap(start)
            way = min(ways, key=lambda each: self._cost(each, bounds, start))
        others = [each for each in ways if each is not way]
        size = min(self._limit + 1, max(SHORT_SLICE, 2 * self._limit // len(way.lanes)))
        return self._merged([self._stops(lane, bounds, size, others) for lane in way.lanes])

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
        inside = lanes.written_in(self._wanted.updated).limit(MOST_IN_WINDOW + 1)
        count = select(func.count()).select_from(inside.subquery())
        return self._connection.execute(count).scalar_one() <= MOST_IN_WINDOW

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
        row = self._connection.execute(_rows(lane, bounds).limit(1).offset(number)).first()
        return None if row is None else (row[0], row[1])

    def _stops(self, lane: Lane, bounds: _Bounds, size: int, others: Sequence[Way]) -> Iterator[_Stop]:
        """What is wanted of a lane: all of it, or what fulfils the remaining conditions."""
        remaining = [condition for name, condition in self._conditions.items() if name not in lane.covers]
        if remaining:
            yield from self._wanted_stops(lane, bounds, remaining, others)
            return
        while True:
            rows = self._connection.execute(_rows(lane, bounds).limit(size)).all()
            yield from (_Stop((row.created_time, row.id), wanted=True) for row in rows)
            if len(rows) < size:
                return
            bounds = bounds._replace(below=(rows[-1].created_time, rows[-1].id))

    def _wanted_stops(
        self, lane: Lane, bounds: _Bounds, remaining: Sequence[Condition], others: Sequence[Way]
    ) -> Iterator[_Stop]:
        """What is wanted of a lane, slice by slice, until the page's work is done."""
        size = max(FIRST_SLICE, self._limit + 1)
        while True:
            rows = self._connection.execute(_slice(lane, bounds, size, remaining)).all()
            self._visits_left -= size
            fits = [_Stop((row.created_time, row.id), wanted=True) for row in rows if row.is_wanted]
            yield from fits
            if not rows or rows[-1].number < size:
                return
            bounds = bounds._replace(below=(rows[-1].created_time, rows[-1].id))
            if not fits and others:
                start = self._start(others, bounds)
                if start is None:
                    return
                bounds = bounds.leap(start)
            if self._visits_left <= 0:
                yield _Stop((rows[-1].created_time, rows[-1].id), wanted=False)
                return
            size = max(FIRST_SLICE, min(4 * size, self._visits_left))


def _rows(lane: Lane, bounds: _Bounds, *further: str) -> Select[Any]:
    """The positions of a lane's rows, newest first, and further columns of theirs."""
    table = lane.table.c
    columns = (table.created_time, table[lane.id_name].label("id"), *(table[name] for name in further))
    found = select(*columns).where(*lane.where).with_hint(lane.table, f"INDEXED BY {lane.index}", "sqlite")
    created_time: ColumnElement[Any] = table.created_time
    saga_id: ColumnElement[Any] = table[lane.id_name]
    if lane.is_sorted_here:
        # Without an order inside, a database has no reason to take the index that gives the order, and to go through
        # all of it for the few rows that were written in the window.
        inside = found.offset(0).subquery()
        found, created_time, saga_id = select(inside), inside.c.created_time, inside.c.id
    if bounds.since is not None:
        found = found.where(created_time >= bounds.since)
    if bounds.below is not None:
        position = tuple_(literal(bounds.below[0], InstantType()), literal(bounds.below[1]))
        found = found.where(tuple_(created_time, saga_id) < position)
    return found.order_by(created_time.desc(), saga_id.desc())


def _slice(lane: Lane, bounds: _Bounds, size: int, remaining: Sequence[Condition]) -> Select[Any]:
    """What is wanted of so many rows of a lane, and the last of them."""
    if lane.table is schema.saga:
        rows: FromClause = _rows(lane, bounds, *_READ_BY_CONDITIONS).limit(size).subquery()
        columns, asked = rows.c, rows
    else:
        labelled = _rows(lane, bounds).limit(size).subquery()
        columns, asked = schema.saga.c, labelled.join(schema.saga, schema.saga.c.id == labelled.c.id)
    newest_first = (columns.created_time.desc(), columns.id.desc())
    judged = select(
        columns.created_time,
        columns.id,
        and_(*(condition(columns) for condition in remaining)).label("is_wanted"),
        func.row_number().over(order_by=newest_first).label("number"),
    )
    each = judged.select_from(asked).subquery().c
    return select(*each).where(or_(each.is_wanted, each.number == size)).order_by(each.number)
