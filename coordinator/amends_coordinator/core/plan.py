"""What a saga is to do, as the core sees it: a definition without its protobuf types.

`definitions` compiles a registered definition into a `Plan`; its bindings and descriptors stay there, under the same
step names.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from amends_coordinator.core.answer import REJECTED_CODES
from amends_coordinator.core.ids import DefinitionVersion, StepName
from amends_coordinator.core.states import ACTION, Direction, FailurePolicy, Guarantee, OnUnknown, StepKind

NOTHING_TO_UNDO_CODES = frozenset({"NOT_FOUND"})


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
    `rejected_codes`: on an action, the gRPC codes by name that are a clear no.
    `already_done_codes`: on an action, those that say that the key or its effect is there already: the lookup is asked.
    `nothing_to_undo_codes`: on a compensation, those that say that there was nothing to undo.
    `idempotency_window_us`: how long the participant remembers a key, from the first attempt on; 0: for ever.
    """

    method: str
    timeout_us: int
    retry: RetryPlan
    needs_response: bool = False
    by_key: bool = False
    rejected_codes: frozenset[str] = REJECTED_CODES
    already_done_codes: frozenset[str] = frozenset()
    nothing_to_undo_codes: frozenset[str] = NOTHING_TO_UNDO_CODES
    idempotency_window_us: int = 0

    @property
    def finds_unanswered_work(self) -> bool:
        """Whether it can be called although the action's response is missing (never with an empty id)."""
        return self.by_key or not self.needs_response


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPlan:
    """One step. `after` names the steps that must have succeeded before it begins.

    `guarantee` is what all its calls together promise: the weakest of them, and at most `KEY` unless one participant
    serves them all. `lookup_seals`: a lookup that finds nothing can promise that the action never will run.
    `on_unknown`: what happens when nothing more can be learnt about the action. `settle_delay_us`: how long after the
    last attempt's deadline a lookup that finds nothing is believed although it seals nothing; None: never.
    `at_most_once`: the action isn't repeated once an attempt ended unknown. `response_read`: a call of a later step,
    its own compensation or the saga's output reads the action's response.
    """

    name: StepName
    kind: StepKind
    after: tuple[StepName, ...]
    action: CallPlan
    compensation: CallPlan | None = None
    lookup: CallPlan | None = None
    participant: str = ""
    guarantee: Guarantee = Guarantee.KEY
    lookup_seals: bool = False
    on_unknown: OnUnknown = OnUnknown.COMPENSATE
    settle_delay_us: int | None = None
    at_most_once: bool = False
    response_read: bool = False

    def call(self, direction: Direction) -> CallPlan:
        """The plan of one direction.

        Raises:
            KeyError: the step has no such call; the core never asks for one that isn't there.
        """
        if direction is ACTION:
            return self.action
        plan = self.compensation if direction is Direction.COMPENSATION else self.lookup
        if plan is None:
            raise KeyError(f"step {self.name} has no {direction}")
        return plan


@dataclass(frozen=True)
class Plan:
    """The steps of a definition in topological order, and what holds for the saga as a whole.

    `on_compensated` are steps that begin once the saga is compensated; their kind is retriable.
    """

    name: str
    version: DefinitionVersion
    steps: tuple[StepPlan, ...]
    timeout_us: int
    failure_policy: FailurePolicy = FailurePolicy.CONTINUE
    on_compensated: tuple[StepPlan, ...] = ()

    @cached_property
    def by_name(self) -> dict[StepName, StepPlan]:
        """All steps by name, those that begin once the saga is compensated included."""
        return {step.name: step for step in (*self.steps, *self.on_compensated)}

    @cached_property
    def keys_are_forgotten(self) -> bool:
        """Whether any of the participants remembers keys for some time only."""
        calls = [call for step in self.by_name.values() for call in (step.action, step.compensation, step.lookup)]
        return any(call is not None and call.idempotency_window_us > 0 for call in calls)

    @cached_property
    def first_steps(self) -> tuple[StepPlan, ...]:
        """The steps that a saga begins with: they come after no other."""
        return tuple(step for step in self.steps if not step.after)

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
        """The steps that are never rejected: retriable ones, every read-only one behind the point of no return, and
        those that begin once the saga is compensated.
        """
        behind: set[StepName] = set()
        for step in self.steps:
            follows = any(name == self.point_of_no_return or name in behind for name in step.after)
            if step.kind is StepKind.RETRIABLE or (step.kind is StepKind.READ_ONLY and follows):
                behind.add(step.name)
        return frozenset(behind).union(step.name for step in self.on_compensated)

    @cached_property
    def dependents(self) -> dict[StepName, tuple[StepName, ...]]:
        """For each step, the steps that directly depend on it."""
        return {s.name: tuple(d.name for d in self.steps if s.name in d.after) for s in self.steps}

    @cached_property
    def descendants(self) -> dict[StepName, frozenset[StepName]]:
        """For each step, all steps that depend on it, directly or through others."""
        found: dict[StepName, frozenset[StepName]] = {}
        for step in reversed(self.steps):
            direct = self.dependents[step.name]
            found[step.name] = frozenset(direct).union(*(found[name] for name in direct))
        return found
