"""The order saga is a definition that a coordinator accepts, with what the services' annotations add to it."""

from __future__ import annotations

from amends.v1.saga_definition_pb2 import SagaDefinition, StepKind
from amends_coordinator.definitions.plans import plan_of
from amends_coordinator.definitions.registration import resolve
from shop.saga import order

COMPENSATABLE, PIVOT, RETRIABLE = (
    StepKind.STEP_KIND_COMPENSATABLE,
    StepKind.STEP_KIND_PIVOT,
    StepKind.STEP_KIND_RETRIABLE,
)


def resolved() -> SagaDefinition:
    """The definition as a coordinator stores it."""
    return resolve(order.definition())


def test_its_steps_and_kinds() -> None:
    """S6: everything that can be refused comes before the pivot, everything after it is repeated until it succeeds."""
    assert [(step.name, step.kind) for step in resolved().steps] == [
        ("create_order", COMPENSATABLE),
        ("reserve", COMPENSATABLE),
        ("authorize", COMPENSATABLE),
        ("ship", PIVOT),
        ("capture", RETRIABLE),
        ("notify", RETRIABLE),
    ]


def test_every_compensatable_step_can_be_undone_without_its_response() -> None:
    """S4: an action whose answer was lost is found by its barrier, which guards what undoes it, too."""
    undone = {step.name: step.compensation for step in resolved().steps if step.kind == COMPENSATABLE}
    assert {name: compensation.method.rpartition("/")[2] for name, compensation in undone.items()} == {
        "create_order": "CancelOrder",
        "reserve": "Release",
        "authorize": "Void",
    }
    plan = plan_of(resolved())
    assert all(step.compensation.by_key for step in plan.steps if step.compensation is not None)


def test_the_annotations_are_part_of_it() -> None:
    """A participant's deploy changes no running saga: its deadline and lookup are frozen here."""
    authorize = next(step for step in resolved().steps if step.name == "authorize")
    assert authorize.action.timeout.seconds == 2
    assert authorize.lookup.method == "shop.payments.v1.PaymentsService/FindAuthorization"
