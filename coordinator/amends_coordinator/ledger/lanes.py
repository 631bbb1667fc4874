"""The ways to a list of sagas: indexes that give them newest first, and what is left to ask of a saga found by one.

A *lane* is one walk along one index: all sagas with a label; all committed sagas of a definition. Of each kind of
filter `ways` makes the lanes that together hold every saga which it lets through. Which of them is walked is decided by
`listing`.

Lanes of sagas have one state each: only so an index gives their newest without a sort. Those of states that never
change again have indexes of their own (`schema.SETTLED`); the few sagas that aren't there yet are found by their state.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sqlalchemy import ColumnElement, and_, literal_column, or_, select, true

from amends_coordinator.core.states import SagaState
from amends_coordinator.ledger import schema

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlalchemy import ColumnCollection, Select, Table

    from amends_coordinator.core.ids import Instant
    from amends_coordinator.ports.listing import SagaFilter, ServedBy, Span

    Columns = ColumnCollection[str, Any]
    Condition = Callable[[Columns], ColumnElement[bool]]

MOST_DEFINITIONS = 32
"""A participant that serves more definitions is looked for along all sagas."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """Rows in the order of an index. `covers`: the conditions that hold for every saga in it. `is_sorted_here`: the
    index finds them, but has another order.
    """

    index: str
    where: tuple[ColumnElement[bool], ...]
    covers: frozenset[str]
    table: Table = schema.saga
    id_name: str = "id"
    is_sorted_here: bool = False


@dataclass(frozen=True, slots=True)
class Way:
    """Lanes that together hold every saga which is wanted."""

    lanes: tuple[Lane, ...]
    is_window: bool = False
    """Whether its lanes have to be sorted, so that it is walked only if no other one is short."""


def conditions(wanted: SagaFilter) -> dict[str, Condition]:
    """What is asked of a saga's row, by name; each is answered from the row alone, or by one look at a primary key."""
    found = {f"label {key}": _has_label(key, value) for key, value in wanted.labels.items()}
    states, since, served = sorted(wanted.possible_states), wanted.stalled_since, wanted.served_by
    asked: dict[str, tuple[bool, Condition]] = {
        "state": (len(states) < len(SagaState), lambda row: row.state.in_(states)),
        "definition": (bool(wanted.definition_name), lambda row: row.definition_name == wanted.definition_name),
        "version": (bool(wanted.definition_version), lambda row: row.definition_version == wanted.definition_version),
        "attention": (wanted.attention_required, lambda row: row.attention_required),
        "unproven": (wanted.unproven, lambda row: row.unproven),
        "owed": (wanted.compensations_owed, lambda row: row.compensations_owed > 0),
        "updated": (wanted.updated.is_bounded, lambda row: within(row.updated_time, wanted.updated)),
    }
    found |= {name: condition for name, (is_asked, condition) in asked.items() if is_asked}
    if since is not None:
        found["stalled"] = lambda row: and_(row.progress_time <= since, _is_unfinished(row))
    if served is not None:
        found["participant"] = lambda row: _is_served(row, served)
    return found


def within(column: ColumnElement[Instant], span: Span) -> ColumnElement[bool]:
    """Whether an instant lies in a span."""
    parts: list[ColumnElement[bool]] = []
    if span.earliest is not None:
        parts.append(column >= span.earliest)
    if span.latest is not None:
        parts.append(column <= span.latest)
    return and_(true(), *parts)


def ways(wanted: SagaFilter) -> list[Way]:
    """The ways to what is wanted, but for the one along what was written in a span of time (`way_of_window`)."""
    states = sorted(wanted.possible_states)
    own: list[Way] = []
    if wanted.attention_required:
        own.append(_by_state(states, _attention))
    if wanted.unproven:
        own.append(_by_state(states, _unproven))
    if wanted.stalled_since is not None:
        own.append(_by_state(states, _unfinished))
    if wanted.definition_name:
        own.append(_by_state(states, _of_definition(wanted.definition_name, wanted.definition_version)))
    further = [Way((_labelled(key, value),)) for key, value in wanted.labels.items()]
    if wanted.served_by is not None:
        further.append(_served(states, wanted.served_by))
    if not own and (not further or len(states) < len(SagaState)):
        own.append(_by_state(states, _in_state))
    return own + further


def way_of_window(wanted: SagaFilter) -> Way:
    """The way along what was written in a span of time."""

    def lane(state: SagaState) -> Lane:
        if not state.ended:
            return _in_state(state)
        window = within(schema.saga.c.updated_time, wanted.updated)
        return replace(_settled("ix_saga_updated", state, {"updated"}, window), is_sorted_here=True)

    return replace(_by_state(sorted(wanted.possible_states), lane), is_window=True)


def written_in(span: Span) -> Select[Any]:
    """What settled and was written in a span of time, whatever its state."""
    saga = schema.saga
    inside = select(saga.c.id).where(_literally(schema.SETTLED), within(saga.c.updated_time, span))
    return inside.with_hint(saga, "INDEXED BY ix_saga_updated", "sqlite")


def _by_state(states: Sequence[SagaState], lane: Callable[[SagaState], Lane]) -> Way:
    return Way(tuple(lane(state) for state in states))


def _in_state(state: SagaState) -> Lane:
    return Lane(index="ix_saga_state", where=(_is(state),), covers=frozenset({"state"}))


def _attention(state: SagaState) -> Lane:
    where = (_is(state), _literally("attention_required"))
    return Lane(index="ix_saga_attention", where=where, covers=frozenset({"state", "attention"}))


def _unproven(state: SagaState) -> Lane:
    return Lane(
        index="ix_saga_unproven", where=(_is(state), _literally("unproven")), covers=frozenset({"state", "unproven"})
    )


def _unfinished(state: SagaState) -> Lane:
    """Sagas with something left to do. Of what has settled that is next to nothing."""
    if not state.ended:
        return _in_state(state)
    return Lane(
        index="ix_saga_unfinished", where=(_is(state), _literally(schema.UNFINISHED)), covers=frozenset({"state"})
    )


def _of_definition(name: str, version: str) -> Callable[[SagaState], Lane]:
    saga = schema.saga.c

    def lane(state: SagaState) -> Lane:
        if not state.ended:
            return _in_state(state)
        if not version:
            return _settled("ix_saga_definition", state, {"definition"}, saga.definition_name == name)
        # Its name is part of what a version is computed from. Asked for the name as well, PostgreSQL may take the index
        # of names, and go through all of them for an old version.
        covered = {"definition", "version"}
        return _settled("ix_saga_definition_version", state, covered, saga.definition_version == version)

    return lane


def _settled(index: str, state: SagaState, covered: set[str], condition: ColumnElement[bool]) -> Lane:
    where = (_is(state), _literally(schema.SETTLED), condition)
    return Lane(index=index, where=where, covers=frozenset({"state", *covered}))


def _labelled(key: str, value: str) -> Lane:
    label = schema.saga_label.c
    return Lane(
        table=schema.saga_label,
        id_name="saga_id",
        index="ix_saga_label_key",
        where=(label.key == key, label.value == value),
        covers=frozenset({f"label {key}"}),
    )


def _served(states: Sequence[SagaState], served: ServedBy) -> Way:
    """Every saga is in the lane of its definition, or in the one of those that chose the participant, or not settled
    yet; some are in two.
    """
    chosen = Lane(
        table=schema.saga_participant,
        id_name="saga_id",
        index="ix_saga_participant_participant",
        where=(schema.saga_participant.c.participant == served.participant,),
        covers=frozenset({"participant"}),
    )
    kinds = [_of_definition(name, "") for name in sorted(served.names)]
    kinds += [_of_definition(name, version) for name, version in sorted(served.versions)]
    if len(kinds) > MOST_DEFINITIONS:
        return Way((chosen, *(_in_state(state) for state in states)))
    settled = [lane(state) for state in states if state.ended for lane in kinds]
    covering = [replace(lane, covers=lane.covers | {"participant"}) for lane in settled]
    return Way((chosen, *covering, *(_in_state(state) for state in states if not state.ended)))


def _literally(condition: str) -> ColumnElement[bool]:
    """The condition of an index, as it has to be repeated for the index to be used."""
    return literal_column(condition)


def _is(state: SagaState) -> ColumnElement[bool]:
    return schema.saga.c.state == state.value


def _is_unfinished(row: Columns) -> ColumnElement[bool]:
    settled = [state.value for state in SagaState if state.ended]
    return or_(row.state.not_in(settled), row.due_time.is_not(None))


def _is_served(row: Columns, served: ServedBy) -> ColumnElement[bool]:
    by_name: dict[str, list[str]] = {}
    for name, version in sorted(served.versions):
        by_name.setdefault(name, []).append(version)
    named = [and_(row.definition_name == name, row.definition_version.in_(found)) for name, found in by_name.items()]
    chosen = schema.saga_participant.c
    is_chosen = _there_is(chosen.saga_id == row.id, chosen.participant == served.participant)
    return or_(row.definition_name.in_(sorted(served.names)), *named, is_chosen)


def _has_label(key: str, value: str) -> Condition:
    label = schema.saga_label.c

    def condition(row: Columns) -> ColumnElement[bool]:
        # By the index of labels: its rows lie beside each other, as those of the sagas that are looked at do.
        return _there_is(
            label.key == key, label.value == value, label.created_time == row.created_time, label.saga_id == row.id
        )

    return condition


def _there_is(*where: ColumnElement[bool]) -> ColumnElement[bool]:
    """Whether there is such a row, looked up for each saga: as EXISTS a database might begin with all of these rows."""
    return select(literal_column("1")).where(*where).limit(1).scalar_subquery().is_not(None)
