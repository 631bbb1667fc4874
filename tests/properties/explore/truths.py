"""What the states of a saga promise about the world: read from what is really the case, not from the saga's rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amends_coordinator.core.states import Guarantee, SagaState, StepKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.properties.explore.graph import Facts, Graph
    from tests.properties.explore.participants import Truth

UNDOING = (SagaState.COMPENSATING, SagaState.COMPENSATION_FAILED, SagaState.COMPENSATED)


def falsehoods(graph: Graph, facts: Facts, truths: Sequence[Truth]) -> Iterator[str]:
    """What a saga's state says that is not so."""
    if facts.state is SagaState.COMMITTED:
        yield from _committed(graph, facts, truths)
    elif facts.state in UNDOING:
        yield from _never_passed(graph, facts, truths)
        if facts.state is SagaState.COMPENSATED:
            yield from _compensated(graph, facts, truths)


def _committed(graph: Graph, facts: Facts, truths: Sequence[Truth]) -> Iterator[str]:
    """Every effect once, and none undone."""
    for number, step in enumerate(graph.plan.steps):
        truth = truths[number]
        if step.kind is StepKind.READ_ONLY or facts.excused[number]:
            continue
        if truth.effects == 0 or truth.undo_runs:
            yield f"S3: committed, but {step.name} did not happen or was undone"
        elif truth.effects > 1 and not _is_admitted(step.guarantee, facts):
            yield f"S3: committed, and {step.name} happened more than once"


def _is_admitted(guarantee: Guarantee, facts: Facts) -> bool:
    """Whether a doubled effect is admitted: the saga is marked unproven, and its participant has no barrier."""
    return facts.unproven and guarantee is not Guarantee.BARRIER


def _compensated(graph: Graph, facts: Facts, truths: Sequence[Truth]) -> Iterator[str]:
    """Nothing stands, unless the saga is marked unproven; and it is so marked only where something is assumed."""
    small = graph.small
    for number, step in enumerate(graph.plan.steps):
        truth = truths[number]
        if step.kind is not StepKind.COMPENSATABLE or facts.excused[number]:
            continue
        if truth.standing and (not facts.unproven or number in facts.settled_late):
            yield f"S4: compensated, but what {step.name} did stands"
        elif truth.undo_runs > truth.effects and not facts.unproven:
            yield f"S4: compensated, but {step.name} was undone more often than it happened"
    proven = small.guarantee is Guarantee.BARRIER and not (small.settle or facts.forced)
    if facts.unproven and proven:
        yield "S4: marked unproven although a barrier proves everything"


def _never_passed(graph: Graph, facts: Facts, truths: Sequence[Truth]) -> Iterator[str]:
    """A saga that rolls back has no pivot and no retriable step that happened."""
    for number, step in enumerate(graph.plan.steps):
        if step.kind in (StepKind.PIVOT, StepKind.RETRIABLE) and not facts.excused[number] and truths[number].effects:
            yield f"S6: the saga is {facts.state}, but {step.name} happened and can't be undone"
