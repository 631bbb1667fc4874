"""The small sagas that are explored: their shapes, and the options that change decisions.

Time is coarse: an attempt takes one tick, the delay after it one more, and a budget lasts for `rounds` such pairs.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from amends_coordinator.core.ids import DefinitionVersion, StepName
from amends_coordinator.core.plan import CallPlan, Plan, RetryPlan, StepPlan
from amends_coordinator.core.states import FailurePolicy, Guarantee, OnUnknown, StepKind

TICK_US = 1_000_000
FAR_US = 1_000_000 * TICK_US
"""When a saga's timeout is, until the explorer says that it has come: it may at any moment."""

ELSEWHERE = "other.Other/Find"
"""The lookup of another participant."""

WINDOW_US = 4 * TICK_US
SETTLE_US = TICK_US
GRACE_US = TICK_US

KINDS = {
    "C": StepKind.COMPENSATABLE,
    "O": StepKind.READ_ONLY,
    "P": StepKind.PIVOT,
    "R": StepKind.RETRIABLE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Small:
    """A small saga with everything that may happen to it.

    `shape`: segments joined by "-", each a chain of letters or branches side by side, as in "C-(CC|C)-P".
    `refusals`, `rounds`: how many clear refusals, and how many unknown attempts, spend a budget.
    `blind`: the compensation reads the action's response, so it can't find the work of an unanswered one.
    `settle`, `window`, `already_done`, `at_most_once`, `park`: the options of the same or a similar name, of all steps.
    `apology`: a step follows the compensated saga.
    `aborts`, `timeouts`, `crashes`: whether these happen.
    `driver_fails`: the coordinator itself fails on the saga again and again.
    `desk`, `resolves`, `terminate`: people retry dead letters, resolve them too, or terminate the saga.
    `outages`, `wiring`, `soft_aborts`: calls can't be sent, methods aren't there, who succeeds asks for an abort.
    `copies`: calls that were answered arrive once more. `bindings`: requests can't be built.
    `elsewhere`: lookups are answered by another participant, which keeps the barrier's rules and knows of nothing.
    `late`: what is due is looked at, and answers come, also when every budget and window is over.
    """

    shape: str
    guarantee: Guarantee = Guarantee.BARRIER
    policy: FailurePolicy = FailurePolicy.CONTINUE
    lookup: bool = True
    refusals: int = 1
    rounds: int = 1
    blind: bool = False
    settle: bool = False
    window: bool = False
    already_done: bool = False
    at_most_once: bool = False
    park: bool = False
    apology: bool = False
    aborts: bool = True
    timeouts: bool = True
    crashes: bool = True
    driver_fails: bool = False
    desk: bool = False
    resolves: bool = True
    terminate: bool = False
    outages: bool = True
    wiring: bool = False
    soft_aborts: bool = False
    copies: bool = False
    bindings: bool = False
    elsewhere: bool = False
    late: bool = False

    def __str__(self) -> str:
        chosen = [self.shape, self.guarantee.value.lower()]
        for field in fields(self)[2:]:
            value = getattr(self, field.name)
            if value != field.default:
                name = field.name.replace("_", " ")
                chosen.append(name if value is True else f"{name}={value}" if value is not False else f"no {name}")
        return ", ".join(chosen).lower().replace(self.shape.lower(), self.shape, 1)


def plan_of(small: Small) -> Plan:
    """The plan of a small saga; its steps are named a, b, c in the order of the letters."""
    steps: list[StepPlan] = []
    frontier: tuple[StepName, ...] = ()
    for segment in small.shape.split("-"):
        ends: list[StepName] = []
        for branch in segment.strip("()").split("|"):
            after = frontier
            for letter in branch:
                name = StepName("abcdefgh"[len(steps)])
                steps.append(step_of(name, KINDS[letter], after, small))
                after = (name,)
            ends.extend(after)
        frontier = tuple(ends)
    apology = (step_of(StepName("z"), StepKind.RETRIABLE, (), small),) if small.apology else ()
    return Plan("small", DefinitionVersion("0" * 16), tuple(steps), FAR_US, small.policy, apology)


def step_of(name: StepName, kind: StepKind, after: tuple[StepName, ...], small: Small) -> StepPlan:
    """A step with the options of a small saga."""
    retry = RetryPlan(
        initial_delay_us=2 * TICK_US,
        maximum_delay_us=2 * TICK_US,
        total_timeout_us=2 * small.rounds * TICK_US,
        maximum_refusals=small.refusals,
    )
    window_us = WINDOW_US if small.window else 0
    may_be_undone = kind is StepKind.COMPENSATABLE
    looked_up = small.lookup and kind is not StepKind.READ_ONLY
    already_done = frozenset({"ALREADY_EXISTS"} if small.already_done and looked_up else ())
    return StepPlan(
        name=name,
        kind=kind,
        after=after,
        action=CallPlan(
            method="shop.Shop/Do",
            timeout_us=TICK_US,
            retry=retry,
            already_done_codes=already_done,
            idempotency_window_us=window_us,
        ),
        compensation=CallPlan(
            method="shop.Shop/Undo",
            timeout_us=TICK_US,
            retry=retry,
            needs_response=small.blind,
            idempotency_window_us=window_us,
        )
        if may_be_undone
        else None,
        lookup=CallPlan(method=ELSEWHERE if small.elsewhere else "shop.Shop/Find", timeout_us=TICK_US, retry=retry)
        if looked_up
        else None,
        guarantee=small.guarantee,
        lookup_seals=looked_up
        and not small.elsewhere
        and small.guarantee is Guarantee.BARRIER
        and kind is not StepKind.RETRIABLE,
        on_unknown=OnUnknown.PARK if small.park else OnUnknown.COMPENSATE,
        settle_delay_us=SETTLE_US if small.settle else None,
        at_most_once=small.at_most_once,
        response_read=small.blind and may_be_undone,
    )
