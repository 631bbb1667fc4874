"""Which cases a fault matrix has: every call of the saga, and everything that can go wrong there."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

from amends import Saga
from amends.testing.cases import COMMITTED, COMPENSATED, AnySaga, FaultCase, cases_of
from bank.saga import transfer
from shop.inventory.v1.inventory_pb2 import ReserveRequest
from shop.saga import Release, Reserve, order


def by_name(saga: AnySaga) -> dict[str, FaultCase]:
    """The cases of a saga by their names."""
    return {case.name: case for case in cases_of(saga)}


def test_every_case_has_a_name_of_its_own() -> None:
    """A case is run again by its name."""
    for saga in (order, transfer):
        names = [case.name for case in cases_of(saga)]
        assert len(names) == len(set(names))
        assert all(name.startswith(f"{saga.name}/") for name in names)


def test_every_call_that_the_saga_can_make_has_cases() -> None:
    """Actions, compensations, those of nothing, and lookups, also those that only an annotation names."""
    calls = Counter((case.step, case.call) for case in cases_of(order))
    assert {step for step, call in calls if call == "action"} == {step.name for step in order.steps}
    assert {step for step, call in calls if call == "compensation"} == {"create_order", "reserve", "authorize"}
    assert {step for step, call in calls if call == "lookup"} == {"authorize", "ship"}
    assert {step for step, call in calls if call == "null-compensation"} == {"create_order", "reserve"}
    assert {step for step, call in Counter((c.step, c.call) for c in cases_of(transfer)) if call == "lookup"} == {
        "debit",
        "credit",
    }


def test_a_fault_that_goes_over_leads_no_saga_back() -> None:
    """S12: a lost reply, a killed coordinator, a participant that dies: the saga commits all the same."""
    cases = by_name(order)
    for fault in ("reply-lost", "garbage-reply", "killed-after-intent", "participant-dies-before-commit"):
        for step in order.steps:
            assert cases[f"order/{step.name}/action/{fault}"].ends == {COMMITTED}, (step.name, fault)


def test_a_refusal_leads_back_before_the_point_of_no_return_and_never_behind_it() -> None:
    """S6: what is refused behind the pivot is repeated."""
    cases = by_name(order)
    assert cases["order/reserve/action/rejected"].ends == {COMPENSATED}
    assert cases["order/ship/action/rejected"].ends == {COMPENSATED}
    assert cases["order/capture/action/rejected"].ends == {COMMITTED}
    assert cases["order/capture/action/down-until-timeout"].ends == {COMMITTED}


def test_a_step_that_is_called_at_most_once_may_lead_back_where_others_are_repeated() -> None:
    """S12: such a step is not called again after a crash, so nobody can demand that it commits."""
    saga = Saga("once", input=ReserveRequest, timeout=timedelta(minutes=5))
    step = saga.step("reserve", Reserve(sku=saga.input.sku), at_most_once=True)
    step.compensated_by(Release(reservation_id=step.response.reservation_id))
    assert by_name(saga)["once/reserve/action/killed-after-intent"].ends == {COMMITTED, COMPENSATED}


def test_every_case_makes_its_troubles_anew() -> None:
    """A case that was played once can be played again."""
    for case in cases_of(order):
        first, second = case.troubles(), case.troubles()
        assert all(trouble not in second for trouble in first)
