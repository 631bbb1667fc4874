"""The ways to a list of sagas: indexes that give them newest first, and what is left to ask of a saga found by one.

A *lane* is one walk along one index: all sagas with a label; all committed sagas of a definition. Of each kind of
filter `ways` makes the lanes that together hold every saga which it lets through. Which of them is walked is decided by
`listing`.

Lanes of sagas have one state each: only so an index gives their newest without a sort. Those of states that never
change again have indexes of their own (`schema.SETTLED`); the few sagas that aren't there yet are found by their state.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from amends_coordinator.core.states import SagaState
from amends_coordinator.ledger.damage import FIRST_INSTANT, LAST_INSTANT
from amends_coordinator.ledger.list_statements import STATES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from amends_coordinator.ledger.list_statements import Shape
    from amends_coordinator.ports.listing import SagaFilter, ServedBy, Span

    Values = Mapping[str, object]

MOST_DEFINITIONS = 32
"""A participant that serves more definitions is looked for along all sagas."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """Rows in the order of an index, with the values of its parameters. `covers`: the conditions that hold for every
    saga in it.
    """

    index: str
    values: Values
    covers: frozenset[str]


@dataclass(frozen=True, slots=True)
class Way:
    """Lanes that together hold every saga which is wanted."""

    lanes: tuple[Lane, ...]
    is_window: bool = False
    """Whether its lanes have to be sorted, so that it is walked only if no other one is short."""


@dataclass(frozen=True, slots=True)
class Condition:
    """What is asked of a saga's row."""

    shape: Shape
    values: Values


def conditions(wanted: SagaFilter) -> dict[str, Condition]:
    """Everything that is asked, by name."""
    states, since, served = sorted(wanted.possible_states), wanted.stalled_since, wanted.served_by
    asked: dict[str, tuple[bool, Values]] = {
        "definition_name": (bool(wanted.definition_name), {"of_definition_name": wanted.definition_name}),
        "definition_version": (bool(wanted.definition_version), {"of_definition_version": wanted.definition_version}),
        "state": (len(states) < STATES, _padded("of_state", states, STATES)),
        "attention": (wanted.attention_required, {}),
        "unproven": (wanted.unproven, {}),
        "owed": (wanted.compensations_owed, {}),
        "updated": (wanted.updated.is_bounded, _ends(wanted.updated, "of")),
        "stalled": (since is not None, {"of_stalled_since": since}),
    }
    found = {name: Condition((name, 0, 0), values) for name, (is_asked, values) in asked.items() if is_asked}
    for number, (key, value) in enumerate(sorted(wanted.labels.items())):
        values = {f"of_label_key_{number}": key, f"of_label_value_{number}": value}
        found[f"label {key}"] = Condition(("label", number, 0), values)
    if served is not None:
        found["participant"] = _is_served(served)
    return found


def window(wanted: SagaFilter) -> Values:
    """The values of the span in which sagas were written."""
    return _ends(wanted.updated, "updated")


def ways(wanted: SagaFilter) -> list[Way]:
    """The ways to what is wanted, but for the one along what was written in a span of time (`way_of_window`)."""
    states = sorted(wanted.possible_states)
    own: list[Way] = []
    if wanted.attention_required:
        own.append(_by_state(states, _marked("ix_saga_attention", "attention")))
    if wanted.unproven:
        own.append(_by_state(states, _marked("ix_saga_unproven", "unproven")))
    if wanted.stalled_since is not None:
        own.append(_by_state(states, _unfinished))
    if wanted.definition_name:
        own.append(_by_state(states, _of_definition(wanted.definition_name, wanted.definition_version)))
    further = [Way((_labelled(key, value),)) for key, value in wanted.labels.items()]
    if wanted.served_by is not None:
        further.append(_served(states, wanted.served_by))
    if not own and (not further or len(states) < STATES):
        own.append(_by_state(states, _in_state))
    return own + further


def way_of_window(wanted: SagaFilter) -> Way:
    """The way along what was written in a span of time."""

    def lane(state: SagaState) -> Lane:
        return _settled("ix_saga_updated", state, window(wanted), "updated") if state.ended else _in_state(state)

    return replace(_by_state(sorted(wanted.possible_states), lane), is_window=True)


def _by_state(states: Sequence[SagaState], lane: Callable[[SagaState], Lane]) -> Way:
    return Way(tuple(lane(state) for state in states))


def _in_state(state: SagaState) -> Lane:
    return Lane(index="ix_saga_state", values={"state": state.value}, covers=frozenset({"state"}))


def _marked(index: str, covered: str) -> Callable[[SagaState], Lane]:
    return lambda state: _settled(index, state, {}, covered)


def _unfinished(state: SagaState) -> Lane:
    """Sagas with something left to do. Of what has settled that is next to nothing."""
    return _settled("ix_saga_unfinished", state, {}) if state.ended else _in_state(state)


def _of_definition(name: str, version: str) -> Callable[[SagaState], Lane]:
    def lane(state: SagaState) -> Lane:
        if not state.ended:
            return _in_state(state)
        if not version:
            return _settled("ix_saga_definition", state, {"definition_name": name}, "definition_name")
        covered = ("definition_name", "definition_version")
        return _settled("ix_saga_definition_version", state, {"definition_version": version}, *covered)

    return lane


def _settled(index: str, state: SagaState, values: Values, *covered: str) -> Lane:
    return Lane(index=index, values={"state": state.value, **values}, covers=frozenset({"state", *covered}))


def _labelled(key: str, value: str) -> Lane:
    values = {"label_key": key, "label_value": value}
    return Lane(index="ix_saga_label_key", values=values, covers=frozenset({f"label {key}"}))


def _served(states: Sequence[SagaState], served: ServedBy) -> Way:
    """Every saga is in the lane of its definition, or in the one of those that chose the participant, or not settled
    yet; some are in two.
    """
    values = {"participant": served.participant}
    chosen = Lane(index="ix_saga_participant_participant", values=values, covers=frozenset({"participant"}))
    kinds = [_of_definition(name, "") for name in sorted(served.names)]
    kinds += [_of_definition(name, version) for name, version in sorted(served.versions)]
    if len(kinds) > MOST_DEFINITIONS:
        return Way((chosen, *(_in_state(state) for state in states)))
    settled = [lane(state) for state in states if state.ended for lane in kinds]
    covering = [replace(lane, covers=lane.covers | {"participant"}) for lane in settled]
    return Way((chosen, *covering, *(_in_state(state) for state in states if not state.ended)))


def _is_served(served: ServedBy) -> Condition:
    names, versions = sorted(served.names), sorted(version for _, version in served.versions)
    sizes = _power_of_two(len(names)), _power_of_two(len(versions))
    values = {
        "of_participant": served.participant,
        **_padded("of_name", names, sizes[0]),
        **_padded("of_one_version", versions, sizes[1]),
    }
    return Condition(("participant", *sizes), values)


def _power_of_two(count: int) -> int:
    """So that few statements are made, whatever a participant serves."""
    return 1 << max(0, count - 1).bit_length()


def _padded(name: str, values: Sequence[str], count: int) -> Values:
    """So many parameters: the last value is repeated, and "", which nothing is called, stands for none."""
    filled = [*values, *[values[-1] if values else ""] * (count - len(values))]
    return {f"{name}_{number}": value for number, value in enumerate(filled)}


def _ends(span: Span, name: str) -> Values:
    return {
        f"{name}_earliest": FIRST_INSTANT if span.earliest is None else span.earliest,
        f"{name}_latest": LAST_INSTANT if span.latest is None else span.latest,
    }
