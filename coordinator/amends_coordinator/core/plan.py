"""What a saga is to do, as the core sees it: a definition without its protobuf types.

`definitions` compiles a registered definition into a `Plan`; its bindings and descriptors stay there, under the same
step names.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from amends_coordinator.core.ids import DefinitionVersion, StepName
from amends_coordinator.core.states import Direction, FailurePolicy, Guarantee, StepKind


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPlan:
    """How often and how long a call is repeated (all spans in microseconds)."""

    initial_delay_us: int
    maximum_delay_us: int
    total_timeout_us: int
    maximum_refusals: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CallPlan:
    """One direction of a step: the method "package.Service/Method", its attempt timeout and its budget.

    `needs_response`: its request reads the action's response, so it can't be built when that never arrived.
    `by_key`: it finds its work by the action's key alone.
    """

    method: str
    timeout_us: int
    retry: RetryPlan
    needs_response: bool = False
    by_key: bool = False

    @property
    def finds_unanswered_work(self) -> bool:
        """Whether it can be called although the action's response is missing (never with an empty id)."""
        return self.by_key or not self.needs_response


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPlan:
    """One step. `after` names the steps that must have succeeded before it begins."""

    name: StepName
    kind: StepKind
    after: tuple[StepName, ...]
    action: CallPlan
    compensation: CallPlan | None = None
    lookup: CallPlan | None = None
    participant: str = ""
    guarantee: Guarantee = Guarantee.KEY

    def call(self, direction: Direction) -> CallPlan:
        """The plan of one direction.

        Raises:
            KeyError: the step has no such call; the core never asks for one that isn't there.
        """
        found = {
            Direction.ACTION: self.action,
            Direction.COMPENSATION: self.compensation,
            Direction.LOOKUP: self.lookup,
        }
        plan = found[direction]
        if plan is None:
            raise KeyError(f"step {self.name} has no {direction}")
        return plan


@dataclass(frozen=True)
class Plan:
    """The steps of a definition in topological order, and what holds for the saga as a whole."""

    name: str
    version: DefinitionVersion
    steps: tuple[StepPlan, ...]
    timeout_us: int
    failure_policy: FailurePolicy = FailurePolicy.CONTINUE

    @cached_property
    def by_name(self) -> dict[StepName, StepPlan]:
        """The steps by name."""
        return {step.name: step for step in self.steps}

    @cached_property
    def point_of_no_return(self) -> StepName | None:
        """The step whose intent sets it: the pivot, else the first retriable one, else none (then the commit is it)."""
        for kind in (StepKind.PIVOT, StepKind.RETRIABLE):
            for step in self.steps:
                if step.kind is kind:
                    return step.name
        return None

    @cached_property
    def forward_only(self) -> frozenset[StepName]:
        """The steps that are never rejected: retriable ones, and every read-only one behind the point of no return."""
        behind: set[StepName] = set()
        for step in self.steps:
            follows = any(name == self.point_of_no_return or name in behind for name in step.after)
            if step.kind is StepKind.RETRIABLE or (step.kind is StepKind.READ_ONLY and follows):
                behind.add(step.name)
        return frozenset(behind)

    @cached_property
    def dependents(self) -> dict[StepName, tuple[StepName, ...]]:
        """For each step, the steps that directly depend on it."""
        return {s.name: tuple(d.name for d in self.steps if s.name in d.after) for s in self.steps}
