"""What follows what: defaults, any earlier steps, and how both are stored."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amends.v1 import saga_definition_pb2 as pb
from amends_coordinator.core.states import StepKind
from amends_coordinator.definitions.compiled import compile_definition
from amends_coordinator.definitions.registration import InvalidDefinitionError, resolve
from tests.unit.definitions.samples import ANNOUNCED, PACKAGE, SERVICE, definition, registered, stored

HEAD = f'name: "trip" input_type: "{PACKAGE}.Trip"'
PIVOT, RETRIABLE, READ_ONLY = (f"kind: STEP_KIND_{kind}" for kind in ("PIVOT", "RETRIABLE", "READ_ONLY"))


def step(name: str, *said: str) -> str:
    """A step; one that is compensatable is undone by a call without fields."""
    undone = "" if any("kind" in each for each in said) else f'compensation {{ method: "{SERVICE}/Close" }}'
    return f'steps {{ name: "{name}" action {{ method: "{SERVICE}/Everything" }} {undone} {" ".join(said)} }}'


def followed(*steps: str) -> dict[str, tuple[str, ...]]:
    """What each step of a registered definition waits for."""
    plan = compile_definition(stored(registered(definition(HEAD + "".join(steps))))).plan
    return {each.name: each.after for each in (*plan.steps, *plan.on_compensated)}


def test_by_default_a_step_waits_for_all_that_nothing_follows_yet() -> None:
    """Promise: steps side by side come together again by themselves; without `after` there is a chain."""
    assert followed(step("a"), step("b"), step("c", PIVOT), step("d", RETRIABLE)) == {
        "a": (),
        "b": ("a",),
        "c": ("b",),
        "d": ("c",),
    }
    diamond = followed(
        step("a"), step("b", 'after: "a"'), step("c", 'after: "a"'), step("d"), step("e", "after_none: true"), step("f")
    )
    assert diamond == {"a": (), "b": ("a",), "c": ("a",), "d": ("b", "c"), "e": (), "f": ("d", "e")}


def test_after_is_stored_in_one_form() -> None:
    """Promise: the same order has the same version, however it was written."""
    sent = step("a") + step("b", "after_none: true") + step("c", 'after: ["b", "a", "b"]') + step("d")
    resolved = registered(definition(HEAD + sent))
    assert [(list(each.after), each.after_none) for each in resolved.steps] == [
        ([], False),
        ([], True),
        (["a", "b"], False),
        (["c"], False),
    ]
    assert resolve(resolved) == resolved
    written = step("a", "after_none: true") + step("b", "after_none: true") + step("c") + step("d", 'after: "c"')
    assert registered(definition(HEAD + written)).version == resolved.version


def test_both_ends_of_the_saga_may_fan_out() -> None:
    """Promise: whatever waits for the pivot, through others too, may run side by side; so may what it waits for."""
    steps = followed(
        step("a"),
        step("b", "after_none: true"),
        step("q", READ_ONLY, "after_none: true"),
        step("pay", PIVOT, 'after: ["a", "b", "q"]'),
        step("one", RETRIABLE, 'after: "pay"'),
        step("two", RETRIABLE, 'after: "pay"'),
        step("check", READ_ONLY, 'after: "one"'),
    )
    assert steps["two"] == ("pay",)


def test_budgets_follow_the_order_and_not_the_list() -> None:
    """L1: a read-only step is patient only if it waits for the point of no return."""
    text = HEAD + step("a") + step("r", RETRIABLE) + step("q", READ_ONLY, 'after: "r"')
    totals = {each.name: each.action.retry.total_timeout.seconds for each in registered(definition(text)).steps}
    assert totals == {"a": 30, "r": 3_600, "q": 3_600}
    plan = compile_definition(stored(registered(definition(text)))).plan
    assert plan.forward_only == {"r", "q"}


def test_what_comes_afterwards_waits_only_for_its_like() -> None:
    """Promise: steps that begin once the saga is compensated follow each other, and are repeated until they succeed."""
    told = "".join(
        f'on_compensated {{ name: "{name}" {said} action {{ method: "{SERVICE}/Hold" }} }}'
        for name, said in (("x", ""), ("y", ""), ("z", 'after: "x"'))
    )
    resolved = registered(definition(HEAD + step("a") + told))
    assert resolve(resolved) == resolved
    plan = compile_definition(stored(resolved)).plan
    assert [(each.name, each.after, each.kind) for each in plan.on_compensated] == [
        ("x", (), StepKind.RETRIABLE),
        ("y", ("x",), StepKind.RETRIABLE),
        ("z", ("x",), StepKind.RETRIABLE),
    ]
    assert {each.lookup for each in plan.on_compensated} == {None}, "the annotation's lookup is for sagas that go on"
    assert {each.action.retry.total_timeout_us for each in plan.on_compensated} == {3_600_000_000}
    assert plan.forward_only == {"x", "y", "z"}


def test_both_lists_together_have_a_limit() -> None:
    """Promise: the number of steps has a limit (64), wherever they stand."""
    steps = "".join(step(f"s{index}") for index in range(60))
    told = "".join(
        f'on_compensated {{ name: "t{index}" action {{ method: "{SERVICE}/Everything" }} }}' for index in range(5)
    )
    with pytest.raises(InvalidDefinitionError) as caught:
        registered(definition(HEAD + steps + told))
    assert [(fault.path, fault.description) for fault in caught.value.faults] == [
        ("steps", "65 are too many; a saga has 1 to 64 steps, those of on_compensated included")
    ]


KINDS = st.sampled_from(
    [pb.STEP_KIND_COMPENSATABLE, pb.STEP_KIND_READ_ONLY, pb.STEP_KIND_PIVOT, pb.STEP_KIND_RETRIABLE]
)


@given(st.data())
def test_what_is_registered_has_no_way_back_past_the_point_of_no_return(data: st.DataObject) -> None:
    """S6, V15: in every definition that is accepted all that can be refused is over before the point of no return."""
    written = pb.SagaDefinition(name="trip", input_type=f"{PACKAGE}.Trip")
    for index in range(data.draw(st.integers(1, 6), "steps")):
        one = written.steps.add(name=f"s{index}", kind=data.draw(KINDS, "kind"))
        one.action.method = f"{SERVICE}/Everything"
        if one.kind == pb.STEP_KIND_COMPENSATABLE:
            one.compensation.method = f"{SERVICE}/Close"
        if index and data.draw(st.booleans(), "says after"):
            one.after.extend(data.draw(st.lists(st.sampled_from([f"s{each}" for each in range(index)])), "after"))
            one.after_none = not one.after
    try:
        resolved = resolve(written, announced=[ANNOUNCED])
    except InvalidDefinitionError:
        return
    plan = compile_definition(stored(resolved)).plan
    rejectable = {each.name for each in plan.steps if each.kind is not StepKind.PIVOT} - plan.forward_only
    pivots = {each.name for each in plan.steps if each.kind is StepKind.PIVOT}
    points = pivots or {each.name for each in plan.steps if each.kind is StepKind.RETRIABLE}
    assert len(pivots) <= 1
    for point in points:
        assert rejectable <= {name for name in rejectable if point in plan.descendants[name]}
    for pivot in pivots:
        assert plan.descendants[pivot] >= plan.forward_only
    assert not {each.name for each in plan.steps if each.kind is StepKind.COMPENSATABLE} & plan.forward_only
