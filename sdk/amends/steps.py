"""One step of a saga that is being described: its call, how it is undone, and how its outcome is looked up."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from google.protobuf.message import Message

from amends.errors import DefinitionError
from amends.methods import check_call
from amends.options import check_codes, check_duration
from amends.references import message_reference, source_of
from amends.shapes import STRING
from amends.v1 import saga_definition_pb2

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from datetime import timedelta

    import grpc

    from amends.methods import Call
    from amends.options import Codes, Guarantee, OnUnknown, Retry
    from amends.references import Scope, Source

Req = TypeVar("Req", bound=Message)
Res = TypeVar("Res", bound=Message)
# `Any` below: a saga's steps, and a step's undo, have request types of their own that nobody asks for again.
AnyReq = TypeVar("AnyReq", bound=Message)
AnyRes = TypeVar("AnyRes", bound=Message)

_PARTICIPANT_NAME = re.compile(r"[a-z][a-z0-9_-]{0,63}")


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
class CallOptions:
    """What is said about one call beside its request; what isn't said is as annotated, or the default."""

    timeout: timedelta | None = None
    retry: Retry | None = None
    guarantee: Guarantee | None = None
    idempotency_window: timedelta | None = None
    codes: Codes | None = None
    nothing_to_undo_codes: Collection[grpc.StatusCode] | None = None
    by_key: bool = False

    def check(self, where: str) -> None:
        """Refuses what can't be, in the name of that call."""
        check_duration(f"{where}: timeout", self.timeout)
        check_duration(f"{where}: idempotency_window", self.idempotency_window)
        check_codes(f"{where}: nothing_to_undo_codes", self.nothing_to_undo_codes or ())


@dataclass(frozen=True, slots=True)
class StepCall:
    """One of a step's calls with everything that is said about it."""

    call: Call[Any, Any]  # see above
    options: CallOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOptions:
    """What is said about a step as a whole. `participant_input`: path of the input's field that names who serves it."""

    participant: str = ""
    participant_input: str = ""
    guarantee: Guarantee | None = None
    on_unknown: OnUnknown | None = None
    settle_delay: timedelta | None = None
    at_most_once: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Readable:
    """What a call may be built from: steps that have happened by then, and why the saga rolls back if it does."""

    steps: frozenset[str]
    failure: bool = False


class Step(Generic[Req, Res]):
    """A step of a saga. Made by `Saga.step`, `read_only`, `pivot`, `retriable` and `on_compensated`.

    Attributes:
        name: its name, unique in its saga.
        kind: what it is with respect to the point of no return.
        after: the steps that must have succeeded before it begins.
        begins_once_compensated: whether it was made by `Saga.on_compensated`.
    """

    __slots__ = (
        "_scope",
        "action",
        "after",
        "begins_once_compensated",
        "compensation",
        "kind",
        "lookup",
        "name",
        "options",
    )

    def __init__(
        self,
        scope: Scope,
        name: str,
        kind: StepKind,
        action: StepCall,
        *,
        after: tuple[Step[Any, Any], ...],
        options: StepOptions,
        begins_once_compensated: bool,
    ) -> None:
        self._scope, self.name, self.kind, self.action, self.after = scope, name, kind, action, after
        self.options, self.begins_once_compensated = options, begins_once_compensated
        self.compensation: StepCall | None = None
        self.lookup: StepCall | None = None

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
        guarantee: Guarantee | None = None,
        idempotency_window: timedelta | None = None,
        nothing_to_undo_codes: Collection[grpc.StatusCode] | None = None,
    ) -> Step[Req, Res]:
        """Says how this step is undone.

        Arguments:
            call: the call that semantically undoes the action. Fields that it doesn't name are taken from the field of
                the same name and type in the action's response, else in its request.
            by_key: it finds its work by the metadata `amends-action-key` alone, so it can be called even when the
                action's response never arrived.
            timeout: the deadline of one attempt, 1 ms to 1 h; default 5 s.
            retry: how it is repeated.
            guarantee: what its method promises about repeated calls. Default: the step's, else the method's annotation,
                else `Guarantee.KEY`.
            idempotency_window: how long its method remembers a key. Default: the annotation's, else for ever.
            nothing_to_undo_codes: what says, while the action's outcome is unknown, that there was nothing to undo;
                empty: no code does. Default: the annotation's, else NOT_FOUND.

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
        options = CallOptions(
            timeout=timeout,
            retry=retry,
            guarantee=guarantee,
            idempotency_window=idempotency_window,
            nothing_to_undo_codes=nothing_to_undo_codes,
            by_key=by_key,
        )
        readable = Readable(steps=ancestors_of(self.after) | {self.name}, failure=True)
        self.compensation = self._side_call(call, options, f"the compensation of step {self.name!r}", readable)
        return self

    def looked_up_by(
        self,
        call: Call[AnyReq, Res],
        *,
        timeout: timedelta | None = None,
        retry: Retry | None = None,
        guarantee: Guarantee | None = None,
    ) -> Step[Req, Res]:
        """Says how a participant is asked what became of this step's action when its answer never came.

        Arguments:
            call: the lookup; it answers with the action's own response type, or `NOT_FOUND`. `saga.action_key` is what
                it usually asks for; a participant also finds it in the metadata `amends-action-key`.
            timeout: the deadline of one attempt, 1 ms to 1 h; default 5 s.
            retry: how it is repeated.
            guarantee: what its method promises. Default: the step's, else the method's annotation, else
                `Guarantee.KEY`.

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
        if self.begins_once_compensated:
            raise DefinitionError(
                f"step {self.name!r} begins once the saga is compensated and is repeated until it succeeds: "
                "leave looked_up_by out"
            )
        if self.lookup is not None:
            raise DefinitionError(f"step {self.name!r} is looked up by {self.lookup.call.method.full_name} already")
        check_call(call, f"the lookup of step {self.name!r}")
        wanted, given = self.action.call.method.descriptor.output_type, call.method.descriptor.output_type
        if wanted.full_name != given.full_name:
            raise DefinitionError(
                f"step {self.name!r} answers {wanted.full_name}, but its lookup {call.method.full_name} answers "
                f"{given.full_name}: a lookup answers what its action answers"
            )
        if call.method.full_name == self.action.call.method.full_name:
            raise DefinitionError(
                f"step {self.name!r} is looked up by its own action, which would be done once more under another key: "
                "name a method that only tells what became of it"
            )
        options = CallOptions(timeout=timeout, retry=retry, guarantee=guarantee)
        readable = Readable(steps=ancestors_of(self.after) | {self.name})
        self.lookup = self._side_call(call, options, f"the lookup of step {self.name!r}", readable)
        return self

    def _refuse_unless_compensatable(self) -> None:
        why = {
            StepKind.READ_ONLY: "is read-only: it changes nothing, so there is nothing to undo",
            StepKind.PIVOT: "is the pivot: once it succeeded the saga only goes forward, so it is never undone",
            StepKind.RETRIABLE: "is retriable: it lies behind the point of no return, so it is never undone",
        }.get(self.kind)
        if self.begins_once_compensated:
            raise DefinitionError(
                f"step {self.name!r} begins once the saga is compensated: nothing undoes it; leave compensated_by out"
            )
        if why is not None:
            raise DefinitionError(f"step {self.name!r} {why}; leave compensated_by out, or make it a step()")

    def _side_call(self, call: Call[Any, Any], options: CallOptions, where: str, readable: Readable) -> StepCall:
        check_call(call, where)
        options.check(where)
        check_sources(self._scope, call.template.sources, where, readable)
        self._scope.changes += 1
        return StepCall(call, options)


def participant_of(scope: Scope, given: object, where: str) -> tuple[str, str]:
    """What a step says about the participant that serves it: its name, or the path of the input's field that has it.

    Arguments:
        scope: the saga that is being described.
        given: what was given as `participant`; the type checkers see a string.
        where: what is being described, for the errors.

    Raises:
        DefinitionError: it is no name, and no string of this saga's input.
    """
    source = source_of(given)
    if source is None:
        if not isinstance(given, str) or (given and not _PARTICIPANT_NAME.fullmatch(given)):
            raise DefinitionError(
                f"{where}: a participant can't be called {given!r}: small letters, digits, '_' and '-', a letter "
                "first, at most 64"
            )
        return given, ""
    if source.scope is not scope:
        raise DefinitionError(f"{where}: participant is {source} of {source.scope!r}, but this is {scope!r}")
    if source.root != "input" or not source.shape.fits(STRING):
        raise DefinitionError(
            f"{where}: participant is {source}, of type {source.shape.text}, but only a name or a string of the saga's "
            "input can say which participant serves a step: put the name into the input"
        )
    return "", ".".join(source.path)


def ancestors_of(after: Iterable[Step[Any, Any]]) -> frozenset[str]:
    """Names of the steps that certainly have succeeded when a step begins that waits for these."""
    found: set[str] = set()
    waiting = list(after)
    while waiting:
        step = waiting.pop()
        if step.name not in found:
            found.add(step.name)
            waiting.extend(step.after)
    return frozenset(found)


def check_sources(scope: Scope, sources: Iterable[tuple[str, Source]], where: str, readable: Readable) -> None:
    """Refuses references to another saga, to steps that need not have happened when the call is made, and to a failure
    that there isn't.
    """
    for target, source in sources:
        if source.scope is not scope:
            raise DefinitionError(
                f"{where}: {target} is filled from {source} of {source.scope!r}, but this is {scope!r}: "
                "use its own references"
            )
        if source.step and source.step not in readable.steps:
            raise DefinitionError(
                f"{where}: {target} is filled from {source}, but step {source.step!r} need not have happened by then: "
                f"steps that have are: {', '.join(sorted(readable.steps)) or 'none'}"
            )
        if source.root == "failure" and not readable.failure:
            raise DefinitionError(
                f"{where}: {target} is filled from {source}, but nothing has failed by then: only compensations and "
                "on_compensated() steps can say why the saga rolls back"
            )
