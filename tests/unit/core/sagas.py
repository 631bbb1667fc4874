"""Sagas for the core's tests, in seconds and with few words."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TypedDict, Unpack

from amends_coordinator.core.answer import REJECTED_CODES
from amends_coordinator.core.events import Moment
from amends_coordinator.core.ids import DefinitionVersion, Instant, NodeId, SagaId, StepName
from amends_coordinator.core.plan import CallPlan, Plan, RetryPlan, StepPlan
from amends_coordinator.core.saga import Saga
from amends_coordinator.core.states import FailurePolicy, Guarantee, OnUnknown, StepKind

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


class StepOptions(TypedDict, total=False):
    """What few steps choose; see `StepPlan` and `CallPlan`. `window_s` is the action's and the compensation's."""

    after: Iterable[str]
    lookup_seals: bool
    on_unknown: OnUnknown
    settle_delay_s: float
    at_most_once: bool
    response_read: bool
    rejected_codes: Iterable[str]
    already_done_codes: Iterable[str]
    nothing_to_undo_codes: Iterable[str]
    window_s: float


def step(
    name: str,
    kind: StepKind = StepKind.COMPENSATABLE,
    *,
    lookup: bool = False,
    needs_response: bool = True,
    by_key: bool = False,
    guarantee: Guarantee = Guarantee.KEY,
    budget: RetryPlan | None = None,
    **options: Unpack[StepOptions],
) -> StepPlan:
    """One step; only a compensatable one has a compensation. `saga_of` puts it behind the one before it, unless `after`
    is given.
    """
    chosen = budget or retry()
    window_us = round(options.get("window_s", 0) * SECOND)
    undo = CallPlan(
        method=f"shop.Shop/Undo_{name}",
        timeout_us=5 * SECOND,
        retry=chosen,
        needs_response=needs_response,
        by_key=by_key,
        nothing_to_undo_codes=frozenset(options.get("nothing_to_undo_codes", {"NOT_FOUND"})),
        idempotency_window_us=window_us,
    )
    action = CallPlan(
        method=f"shop.Shop/Do_{name}",
        timeout_us=5 * SECOND,
        retry=chosen,
        rejected_codes=frozenset(options.get("rejected_codes", REJECTED_CODES)),
        already_done_codes=frozenset(options.get("already_done_codes", ())),
        idempotency_window_us=window_us,
    )
    settle_delay_s = options.get("settle_delay_s")
    return StepPlan(
        name=StepName(name),
        kind=kind,
        after=tuple(StepName(before) for before in options.get("after", ())),
        action=action,
        compensation=undo if kind is StepKind.COMPENSATABLE else None,
        lookup=CallPlan(method=f"shop.Shop/Find_{name}", timeout_us=5 * SECOND, retry=chosen) if lookup else None,
        guarantee=guarantee,
        lookup_seals=options.get("lookup_seals", False),
        on_unknown=options.get("on_unknown", OnUnknown.COMPENSATE),
        settle_delay_us=None if settle_delay_s is None else round(settle_delay_s * SECOND),
        at_most_once=options.get("at_most_once", False),
        response_read=options.get("response_read", False),
    )


def read(name: str) -> StepPlan:
    """A read-only step."""
    return step(name, StepKind.READ_ONLY)


def pivot(
    name: str, *, lookup: bool = False, budget: RetryPlan | None = None, **options: Unpack[StepOptions]
) -> StepPlan:
    """A pivot."""
    return step(name, StepKind.PIVOT, lookup=lookup, budget=budget, **options)


def retriable(
    name: str,
    *,
    guarantee: Guarantee = Guarantee.KEY,
    lookup: bool = False,
    budget: RetryPlan | None = None,
    **options: Unpack[StepOptions],
) -> StepPlan:
    """A retriable step."""
    return step(name, StepKind.RETRIABLE, guarantee=guarantee, lookup=lookup, budget=budget, **options)


def saga_of(
    *steps: StepPlan,
    policy: FailurePolicy = FailurePolicy.CONTINUE,
    timeout_s: float = 100,
    on_compensated: tuple[StepPlan, ...] = (),
) -> Saga:
    """A saga that has not begun, whose steps follow each other."""
    chain: list[StepPlan] = []
    for one in steps:
        chain.append(replace(one, after=(chain[-1].name,)) if chain and not one.after else one)
    return saga_with(tuple(chain), policy=policy, timeout_s=timeout_s, on_compensated=on_compensated)


def saga_with(
    steps: tuple[StepPlan, ...],
    *,
    policy: FailurePolicy = FailurePolicy.CONTINUE,
    timeout_s: float = 100,
    on_compensated: tuple[StepPlan, ...] = (),
) -> Saga:
    """A saga that has not begun, whose steps come after what each of them says."""
    plan = Plan("order", DefinitionVersion("0" * 16), steps, round(timeout_s * SECOND), policy, on_compensated)
    now = Instant(0)
    return Saga(
        id=SagaId("order-1"),
        plan=plan,
        created_time=now,
        updated_time=now,
        progress_time=now,
        deadline_time=Instant(now + plan.timeout_us),
    )
