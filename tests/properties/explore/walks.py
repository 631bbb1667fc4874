"""Walks through sagas whose steps differ in their options, in everything that may happen: too many for every way.

The explorer goes every way of sagas whose steps are all alike, with few circumstances at a time.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

from amends_coordinator.core.plan import Plan, StepPlan
from amends_coordinator.core.states import FailurePolicy, Guarantee, StepKind
from tests.properties.explore.explorer import Explorer, Findings
from tests.properties.explore.shapes import Small, plan_of, step_of

SHAPES = (
    *("C", "C-C", "C-P", "C-R", "O-P", "P-O", "P-R", "C-P-R", "C-O-C", "C-P-O-R", "(C|C)", "(C|O)", "(C|C)-P"),
    *("(C|C)-C", "C-(C|C)", "(CC|C)", "(CC|CC)", "(C|C|C)", "(C|O)-R", "P-(R|R)", "(R|R)-R"),
)
LENGTH = 40


def circumstances(chance: Random) -> Small:
    """A saga, and what may happen to it."""

    def maybe(likelihood: float) -> bool:
        return chance.random() < likelihood

    return Small(
        shape=chance.choice(SHAPES),
        guarantee=Guarantee.KEY,
        policy=chance.choice([*FailurePolicy]),
        settle=True,
        window=True,
        apology=maybe(0.3),
        aborts=maybe(0.7),
        timeouts=maybe(0.5),
        crashes=maybe(0.6),
        driver_fails=maybe(0.2),
        desk=maybe(0.7),
        resolves=maybe(0.8),
        terminate=maybe(0.4),
        outages=maybe(0.6),
        wiring=maybe(0.3),
        soft_aborts=maybe(0.3),
        copies=maybe(0.4),
        bindings=maybe(0.25),
        elsewhere=maybe(0.2),
        late=True,
    )


def options(chance: Random, small: Small, step: StepPlan) -> StepPlan:
    """The step with options of its own, as registration would take them."""
    undoable = step.kind is StepKind.COMPENSATABLE
    lookup = chance.random() < 0.5
    under_one_barrier = () if lookup and small.elsewhere else (Guarantee.BARRIER, Guarantee.BARRIER)
    guarantee = chance.choice([*under_one_barrier, Guarantee.KEY, Guarantee.NONE])
    mixed = replace(
        small,
        guarantee=guarantee,
        lookup=lookup,
        refusals=chance.choice([1, 2]),
        rounds=chance.choice([1, 2]),
        blind=guarantee is not Guarantee.BARRIER and chance.random() < 0.4,
        # Whoever believes a participant that knows of nothing has chosen so: it is admitted as unproven.
        settle=lookup and undoable and not small.elsewhere and chance.random() < 0.3,
        window=guarantee is not Guarantee.NONE and chance.random() < 0.2,
        already_done=chance.random() < 0.3,
        at_most_once=step.kind in (StepKind.COMPENSATABLE, StepKind.PIVOT) and chance.random() < 0.15,
        park=undoable and chance.random() < 0.2,
    )
    return step_of(step.name, step.kind, step.after, mixed)


def mixed_plan(chance: Random, small: Small) -> Plan:
    """The plan of a small saga whose steps differ; what follows a compensated saga is never looked up."""
    plan = plan_of(small)
    apologies = (
        step_of(step.name, step.kind, step.after, replace(small, lookup=False)) for step in plan.on_compensated
    )
    steps = tuple(options(chance, small, step) for step in plan.steps)
    return replace(plan, steps=steps, on_compensated=tuple(apologies))


def walked(seed: int, *, walks: int) -> tuple[Small, Findings]:
    """Walk so often through the saga of this seed: what may happen to it, and what was seen."""
    chance = Random(seed)
    small = circumstances(chance)
    plan = mixed_plan(chance, small)
    explorer = Explorer(small, plan)
    for _ in range(walks):
        explorer.walk(chance, length=LENGTH)
    return small, explorer.seen(f"with the plan {plan}")
