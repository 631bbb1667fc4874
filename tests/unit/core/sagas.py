"""Sagas for the core's tests, in seconds and with few words."""

from __future__ import annotations

from amends_coordinator.core.events import Moment
from amends_coordinator.core.ids import DefinitionVersion, Instant, NodeId, SagaId, StepName
from amends_coordinator.core.plan import CallPlan, Plan, RetryPlan, StepPlan
from amends_coordinator.core.saga import Saga
from amends_coordinator.core.states import FailurePolicy, Guarantee, StepKind

SECOND = 1_000_000


def at(seconds: float, *, node: str = "node-1", fraction: float = 0.0) -> Moment:
    """A moment so many seconds after the epoch of the tests."""
    return Moment(Instant(round(seconds * SECOND)), NodeId(node), fraction)


def retry(*, total_s: float = 10, refusals: int = 2, initial_s: float = 2, maximum_s: float = 8) -> RetryPlan:
    """A budget; without jitter its delays are 1 s, 2 s, 4 s, 4 s ..."""
    return RetryPlan(
        initial_delay_us=round(initial_s * SECOND),
        maximum_delay_us=round(maximum_s * SECOND),
        total_timeout_us=round(total_s * SECOND),
        maximum_refusals=refusals,
    )


def step(
    name: str,
    kind: StepKind = StepKind.COMPENSATABLE,
    *,
    lookup: bool = False,
    needs_response: bool = True,
    by_key: bool = False,
    guarantee: Guarantee = Guarantee.KEY,
    budget: RetryPlan | None = None,
) -> StepPlan:
    """One step; only a compensatable one has a compensation. `saga_of` puts it behind the one before it."""
    chosen = budget or retry()
    undo = CallPlan(
        method=f"shop.Shop/Undo_{name}",
        timeout_us=5 * SECOND,
        retry=chosen,
        needs_response=needs_response,
        by_key=by_key,
    )
    return StepPlan(
        name=StepName(name),
        kind=kind,
        after=(),
        action=CallPlan(method=f"shop.Shop/Do_{name}", timeout_us=5 * SECOND, retry=chosen),
        compensation=undo if kind is StepKind.COMPENSATABLE else None,
        lookup=CallPlan(method=f"shop.Shop/Find_{name}", timeout_us=5 * SECOND, retry=chosen) if lookup else None,
        guarantee=guarantee,
    )


def read(name: str) -> StepPlan:
    """A read-only step."""
    return step(name, StepKind.READ_ONLY)


def pivot(name: str, *, lookup: bool = False) -> StepPlan:
    """A pivot."""
    return step(name, StepKind.PIVOT, lookup=lookup)


def retriable(name: str, *, guarantee: Guarantee = Guarantee.KEY) -> StepPlan:
    """A retriable step."""
    return step(name, StepKind.RETRIABLE, guarantee=guarantee)


def saga_of(*steps: StepPlan, policy: FailurePolicy = FailurePolicy.CONTINUE, timeout_s: float = 100) -> Saga:
    """A saga that has not begun, whose steps follow each other."""
    chain: list[StepPlan] = []
    for one in steps:
        chain.append(_behind(one, chain[-1].name if chain else None))
    plan = Plan("order", DefinitionVersion("0" * 16), tuple(chain), round(timeout_s * SECOND), policy)
    now = Instant(0)
    return Saga(
        id=SagaId("order-1"),
        plan=plan,
        created_time=now,
        updated_time=now,
        deadline_time=Instant(now + plan.timeout_us),
    )


def _behind(one: StepPlan, before: StepName | None) -> StepPlan:
    return StepPlan(
        name=one.name,
        kind=one.kind,
        after=() if before is None else (before,),
        action=one.action,
        compensation=one.compensation,
        lookup=one.lookup,
        participant=one.participant,
        guarantee=one.guarantee,
    )
