"""The builder and the registration agree on what may follow what, step by step."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amends import DefinitionError, Saga, Step
from amends.steps import StepKind
from amends.v1 import saga_definition_pb2 as pb
from amends_coordinator.definitions.registration import InvalidDefinitionError, resolve
from tests.unit.sdk_initiator.travel import Charge, Issue, Mail, Quote, Refund
from typed.v1.typed_pb2 import PlanTrip

AnyStep = Step[Any, Any]  # each has a request and a response type of its own
KINDS = st.sampled_from(list(StepKind))


def add(saga: Saga[PlanTrip, None], name: str, kind: StepKind, after: list[AnyStep] | None) -> AnyStep:
    """Adds a step of this kind."""
    match kind:
        case StepKind.COMPENSATABLE:
            return saga.step(name, Charge(), after=after).compensated_by(Refund(), by_key=True)
        case StepKind.READ_ONLY:
            return saga.read_only(name, Quote(), after=after)
        case StepKind.PIVOT:
            return saga.pivot(name, Issue(), after=after)
        case StepKind.RETRIABLE:
            return saga.retriable(name, Mail(), after=after)


def with_one_more(saga: Saga[PlanTrip, None], name: str, kind: StepKind, after: list[AnyStep] | None) -> object:
    """The saga's definition with a step that its builder has refused."""
    other = Saga("trip", input=PlanTrip)
    add(other, name, kind, None)
    definition = saga.definition() if saga.steps else other.definition()
    if saga.steps:
        definition.steps.append(other.definition().steps[0])
        definition.descriptors.file.extend(other.definition().descriptors.file)
    last: pb.Step = definition.steps[-1]
    last.after.extend(step.name for step in after or ())
    last.after_none = after == []
    return resolve(definition)


@given(st.data())
def test_what_the_builder_refuses_registration_refuses_too_and_nothing_else(data: st.DataObject) -> None:
    """S6, V15: one rule in two places: no line is refused that could stand, and none accepted that could not."""
    saga = Saga("trip", input=PlanTrip)
    for index in range(data.draw(st.integers(1, 6), "steps")):
        kind = data.draw(KINDS, "kind")
        some = st.lists(st.sampled_from(saga.steps), unique_by=id) if saga.steps else st.just([])
        after = data.draw(st.one_of(st.none(), some), "after")
        try:
            add(saga, f"s{index}", kind, after)
        except DefinitionError:
            with pytest.raises(InvalidDefinitionError):
                with_one_more(saga, f"s{index}", kind, after)
        else:
            resolve(saga.definition())
