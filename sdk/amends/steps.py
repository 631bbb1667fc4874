"""One step of a saga that is being described: its call, how it is undone, and how its outcome is looked up."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from google.protobuf.message import Message

from amends.errors import DefinitionError
from amends.references import message_reference
from amends.v1 import annotations_pb2, saga_definition_pb2

if TYPE_CHECKING:
    from collections.abc import Iterable

    from amends.method import Call
    from amends.references import Scope, Source

Req = TypeVar("Req", bound=Message)
Res = TypeVar("Res", bound=Message)
# `Any` below: a saga's steps, and a step's undo, have request types of their own that nobody asks for again.
AnyReq = TypeVar("AnyReq", bound=Message)
AnyRes = TypeVar("AnyRes", bound=Message)

ZERO = timedelta(0)


class Guarantee(Enum):
    """What a method promises about repeated calls with the same idempotency key."""

    NONE = annotations_pb2.GUARANTEE_NONE
    """Nothing: a repeated call may double the effect."""
    KEY = annotations_pb2.GUARANTEE_KEY
    """Once per key. A call that arrives after its compensation still stands."""
    BARRIER = annotations_pb2.GUARANTEE_BARRIER
    """Once per key, and a call that arrives after its compensation is refused."""


class StepKind(Enum):
    """What a step is with respect to the point of no return."""

    COMPENSATABLE = saga_definition_pb2.STEP_KIND_COMPENSATABLE
    """Can be undone; comes before the pivot."""
    READ_ONLY = saga_definition_pb2.STEP_KIND_READ_ONLY
    """Changes nothing."""
    PIVOT = saga_definition_pb2.STEP_KIND_PIVOT
    """The point of no return."""
    RETRIABLE = saga_definition_pb2.STEP_KIND_RETRIABLE
    """Comes after the pivot and is repeated until it succeeds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """How a call is repeated while it doesn't answer clearly. What is left out has the direction's default.

    Delays double from `initial_delay` to `maximum_delay`; half of each is fixed, half is random.
    """

    initial_delay: timedelta | None = None
    """Before the second attempt; 1 ms to `maximum_delay`. Default: 100 ms for an action before the point of no return,
    else 1 s."""
    maximum_delay: timedelta | None = None
    """The longest delay; at most 1 h. Default: 5 s for an action before the point of no return, else 60 s."""
    total_timeout: timedelta | None = None
    """After this the call isn't repeated any more; at most 30 days. Default: 30 s for an action before the point of no
    return, else 1 h."""
    maximum_refusal_count: int | None = None
    """After so many clear refusals the call isn't repeated any more; 1 to 10,000. Default: 10."""

    def __post_init__(self) -> None:
        check_duration("initial_delay", self.initial_delay)
        check_duration("maximum_delay", self.maximum_delay)
        check_duration("total_timeout", self.total_timeout)
        if (
            self.initial_delay is not None
            and self.maximum_delay is not None
            and self.initial_delay > self.maximum_delay
        ):
            raise DefinitionError(
                f"initial_delay {self.initial_delay} is longer than maximum_delay {self.maximum_delay}"
            )
        if self.maximum_refusal_count is not None and self.maximum_refusal_count < 1:
            raise DefinitionError(f"maximum_refusal_count is {self.maximum_refusal_count}: it counts from 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCall:
    """One of a step's calls with everything that is said about it."""

    call: Call[Any, Any]  # see above
    timeout: timedelta | None = None
    retry: Retry | None = None
    by_key: bool = False


class Step(Generic[Req, Res]):
    """A step of a saga. Made by `Saga.step`, `Saga.read_only`, `Saga.pivot` and `Saga.retriable`.

    Attributes:
        name: its name, unique in its saga.
        kind: what it is with respect to the point of no return.
        after: the steps that must have succeeded before it begins.
    """

    __slots__ = ("_scope", "action", "after", "compensation", "guarantee", "kind", "lookup", "name", "participant")

    def __init__(
        self,
        scope: Scope,
        name: str,
        kind: StepKind,
        action: StepCall,
        *,
        after: tuple[Step[Any, Any], ...],
        participant: str,
        guarantee: Guarantee | None,
    ) -> None:
        self._scope, self.name, self.kind, self.action, self.after = scope, name, kind, action, after
        self.participant, self.guarantee = participant, guarantee
        self.compensation: StepCall | None = None
        self.lookup: StepCall | None = None
        self.check_sources(action.call.template.sources, f"step {name!r}", self.ancestors())

    def __repr__(self) -> str:
        return f"<{self.kind.name.lower()} step {self.name!r} of {self._scope!r}>"

    @property
    def request(self) -> Req:
        """The request that the action was called with, as a reference: name its fields to use them in another call."""
        descriptor = self.action.call.method.request.DESCRIPTOR
        return cast("Req", message_reference(self._scope, "request", self.name, descriptor))

    @property
    def response(self) -> Res:
        """The action's response, as a reference: name its fields to use them in a later call or in the undo."""
        descriptor = self.action.call.method.response.DESCRIPTOR
        return cast("Res", message_reference(self._scope, "response", self.name, descriptor))

    def compensated_by(
        self,
        call: Call[AnyReq, AnyRes],
        *,
        by_key: bool = False,
        timeout: timedelta | None = None,
        retry: Retry | None = None,
    ) -> Step[Req, Res]:
        """Says how this step is undone.

        Arguments:
            call: the call that semantically undoes the action. Fields that it doesn't name are taken from the field of
                the same name and type in the action's response, else in its request.
            by_key: it finds its work by the metadata `amends-action-key` alone, so it can be called even when the
                action's response never arrived.
            timeout: the deadline of one attempt, 1 ms to 1 h; default 5 s.
            retry: how it is repeated.

        Returns:
            This step, so that more can be said about it.

        Raises:
            DefinitionError: the step isn't compensatable, has a compensation already, or the call uses a step that need
                not have happened by then.
        """
        self._refuse_unless_compensatable()
        if self.compensation is not None:
            raise DefinitionError(
                f"step {self.name!r} is compensated by {self.compensation.call.method.full_name} already: "
                "a step has one compensation"
            )
        self.compensation = self._side_call(
            call, f"the compensation of step {self.name!r}", timeout, retry, by_key=by_key
        )
        return self

    def looked_up_by(
        self,
        call: Call[AnyReq, Res],
        *,
        timeout: timedelta | None = None,
        retry: Retry | None = None,
    ) -> Step[Req, Res]:
        """Says how a participant is asked what became of this step's action when its answer never came.

        Arguments:
            call: the lookup; it answers with the action's own response type, or `NOT_FOUND`. `saga.action_key` is what
                it usually asks for; a participant also finds it in the metadata `amends-action-key`.
            timeout: the deadline of one attempt, 1 ms to 1 h; default 5 s.
            retry: how it is repeated.

        Returns:
            This step, so that more can be said about it.

        Raises:
            DefinitionError: the step has a lookup already, changes nothing that could be looked up, or the lookup
                answers with another type than the action.
        """
        if self.kind is StepKind.READ_ONLY:
            raise DefinitionError(
                f"step {self.name!r} is read-only: there is nothing to look up, leave looked_up_by out"
            )
        if self.lookup is not None:
            raise DefinitionError(f"step {self.name!r} is looked up by {self.lookup.call.method.full_name} already")
        wanted, given = self.action.call.method.descriptor.output_type, call.method.descriptor.output_type
        if wanted.full_name != given.full_name:
            raise DefinitionError(
                f"step {self.name!r} answers {wanted.full_name}, but its lookup {call.method.full_name} answers "
                f"{given.full_name}: a lookup answers what its action answers"
            )
        self.lookup = self._side_call(call, f"the lookup of step {self.name!r}", timeout, retry, by_key=False)
        return self

    def ancestors(self) -> frozenset[str]:
        """Names of the steps that have certainly succeeded when this one begins."""
        found: set[str] = set()
        waiting = list(self.after)
        while waiting:
            step = waiting.pop()
            if step.name not in found:
                found.add(step.name)
                waiting.extend(step.after)
        return frozenset(found)

    def check_sources(self, sources: Iterable[tuple[str, Source]], where: str, allowed: frozenset[str]) -> None:
        """Refuses references to another saga, and to steps that need not have happened."""
        check_sources(self._scope, sources, where, allowed)

    def _refuse_unless_compensatable(self) -> None:
        why = {
            StepKind.READ_ONLY: "is read-only: it changes nothing, so there is nothing to undo",
            StepKind.PIVOT: "is the pivot: once it succeeded the saga only goes forward, so it is never undone",
            StepKind.RETRIABLE: "is retriable: it lies behind the point of no return, so it is never undone",
        }.get(self.kind)
        if why is not None:
            raise DefinitionError(f"step {self.name!r} {why}; leave compensated_by out, or make it a step()")

    def _side_call(
        self, call: Call[Any, Any], where: str, timeout: timedelta | None, retry: Retry | None, *, by_key: bool
    ) -> StepCall:
        check_duration(f"{where}: timeout", timeout)
        self.check_sources(call.template.sources, where, self.ancestors() | {self.name})
        self._scope.changes += 1
        return StepCall(call=call, timeout=timeout, retry=retry, by_key=by_key)


def check_sources(scope: Scope, sources: Iterable[tuple[str, Source]], where: str, allowed: frozenset[str]) -> None:
    """Refuses references to another saga, and to steps that need not have happened when the call is made."""
    for target, source in sources:
        if source.scope is not scope:
            raise DefinitionError(
                f"{where}: {target} is filled from {source} of {source.scope!r}, but this is {scope!r}: "
                "use its own references"
            )
        if source.step and source.step not in allowed:
            raise DefinitionError(
                f"{where}: {target} is filled from {source}, but step {source.step!r} need not have happened by then: "
                f"steps that have are: {', '.join(sorted(allowed)) or 'none'}"
            )


def check_duration(name: str, duration: timedelta | None) -> None:
    """Refuses a duration that isn't one, or isn't longer than nothing."""
    if duration is None:
        return
    # A caller without a type checker may pass seconds.
    if not isinstance(duration, timedelta):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise DefinitionError(f"{name} is {duration!r}: pass a timedelta, for example timedelta(seconds=5)")
    if duration <= ZERO:
        raise DefinitionError(f"{name} is {duration}: it has to be longer than nothing")
