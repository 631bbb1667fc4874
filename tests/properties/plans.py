"""The small sagas whose every state is searched: all legal orders of kinds, with the options that change decisions.

Time is coarse. An attempt takes one tick, the delay after it one more, and a budget lasts for two such rounds; the
saga's timeout is far away, and the search jumps there when it likes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product

from amends_coordinator.core.ids import DefinitionVersion, StepName
from amends_coordinator.core.plan import CallPlan, Plan, RetryPlan, StepPlan
from amends_coordinator.core.states import FailurePolicy, Guarantee, StepKind

TICK_US = 1_000_000
SAGA_TIMEOUT_US = 100_000 * TICK_US

LETTERS = {
    "C": StepKind.COMPENSATABLE,
    "O": StepKind.READ_ONLY,
    "P": StepKind.PIVOT,
    "R": StepKind.RETRIABLE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What is chosen for all steps of a small saga alike.

    `rounds`: how many unknown attempts (or attempts that could not be sent) spend a budget.
    """

    lookup: bool = True
    needs_response: bool = False
    policy: FailurePolicy = FailurePolicy.CONTINUE
    guarantee: Guarantee = Guarantee.KEY
    maximum_refusals: int = 1
    rounds: int = 2

    def __str__(self) -> str:
        return (
            f"{'lookup' if self.lookup else 'no lookup'}, {'needs' if self.needs_response else 'finds'} its work, "
            f"{self.policy}, {self.guarantee}, {self.maximum_refusals} refusals, {self.rounds} rounds"
        )


@cache
def legal_orders(length: int) -> tuple[str, ...]:
    """Every order of kinds that registration accepts, one letter per step."""
    return tuple(order for kinds in product("COPR", repeat=length) if _is_legal(order := "".join(kinds)))


def _is_legal(order: str) -> bool:
    point = min((order.index(letter) for letter in "PR" if letter in order), default=len(order))
    return "C" not in order[point:] and "P" not in order[point + 1 :]


def small_plan(order: str, options: Options) -> Plan:
    """A chain of steps named a, b, c with the kinds that the letters of `order` stand for."""
    return mixed_plan(order, [options] * len(order), options.policy)


def mixed_plan(order: str, options: Sequence[Options], policy: FailurePolicy) -> Plan:
    """The same with options of its own for every step."""
    names = [StepName(name) for name in "abcdefgh"[: len(order)]]
    steps = tuple(
        _step(name, LETTERS[letter], tuple(names[max(0, index - 1) : index]), chosen)
        for index, (name, letter, chosen) in enumerate(zip(names, order, options, strict=True))
    )
    return Plan("small", DefinitionVersion("0" * 16), steps, SAGA_TIMEOUT_US, policy)


def _step(name: StepName, kind: StepKind, after: tuple[StepName, ...], options: Options) -> StepPlan:
    retry = RetryPlan(
        initial_delay_us=2 * TICK_US,
        maximum_delay_us=2 * TICK_US,
        total_timeout_us=2 * options.rounds * TICK_US,
        maximum_refusals=options.maximum_refusals,
    )
    undo = CallPlan(method="shop.Shop/Undo", timeout_us=TICK_US, retry=retry, needs_response=options.needs_response)
    look = CallPlan(method="shop.Shop/Find", timeout_us=TICK_US, retry=retry)
    return StepPlan(
        name=name,
        kind=kind,
        after=after,
        action=CallPlan(method="shop.Shop/Do", timeout_us=TICK_US, retry=retry),
        compensation=undo if kind is StepKind.COMPENSATABLE else None,
        lookup=look if options.lookup and kind in (StepKind.COMPENSATABLE, StepKind.PIVOT) else None,
        guarantee=options.guarantee,
    )
