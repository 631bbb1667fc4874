"""The typed saga builder: describes a saga step by step; every line is checked when it is written and when it runs."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, cast, overload

from google.protobuf.message import Message

from amends.definition import build_definition
from amends.descriptors import descriptor_of
from amends.errors import DefinitionError
from amends.methods import check_call
from amends.options import check_duration
from amends.order import NewStep, check_name, check_order, followed_by
from amends.references import FailureReference, Scope, message_reference, saga_reference
from amends.steps import (
    CallOptions,
    Readable,
    Step,
    StepCall,
    StepKind,
    StepOptions,
    ancestors_of,
    check_sources,
    participant_of,
)
from amends.templates import Template, make_template
from amends.v1 import saga_definition_pb2

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import timedelta

    from amends.methods import Call
    from amends.options import Codes, Guarantee, OnUnknown, Retry

P = ParamSpec("P")
In = TypeVar("In", bound=Message)
Out = TypeVar("Out", bound=Message | None)
# Twins of those two for the constructor, whose overloads say which saga they make.
InMessage = TypeVar("InMessage", bound=Message)
OutMessage = TypeVar("OutMessage", bound=Message)
Req = TypeVar("Req", bound=Message)
Res = TypeVar("Res", bound=Message)

_SAGA_NAME = re.compile(r"[a-z][a-z0-9_-]{0,63}")


class CompensationFailurePolicy(Enum):
    """What happens to the older compensations when one of them can't go on without a person."""

    CONTINUE = saga_definition_pb2.COMPENSATION_FAILURE_POLICY_CONTINUE
    """They go on: leaving the refund undone because the release failed would be worse. The default."""
    HALT = saga_definition_pb2.COMPENSATION_FAILURE_POLICY_HALT
    """They wait until a person has settled it."""


@dataclass(frozen=True, slots=True)
class _Built:
    """A definition as it was after so many changes of its description."""

    changes: int
    content: bytes
    fingerprint: str


class Saga(Generic[In, Out]):
    """What a saga of this name does, step by step, and how each step is undone.

        order = Saga("order", input=PlaceOrder, output=OrderPlaced, timeout=timedelta(minutes=5))
        reserve = order.step("reserve", Reserve(sku=order.input.sku))
        reserve.compensated_by(Release(reservation_id=reserve.response.reservation_id))
        ship = order.pivot("ship", Ship(reservation_id=reserve.response.reservation_id))
        order.output(OrderPlaced)(shipment_id=ship.response.shipment_id)

    First come the steps that can be undone (`step`), then at most one `pivot`, then those that are repeated until they
    succeed (`retriable`); `read_only` ones may stand anywhere. They run in the order in which they are described,
    unless `after=` says what a step waits for: steps that don't wait for each other run side by side. `on_compensated`
    steps begin once the saga has been rolled back.
    """

    @overload
    def __init__(
        self: Saga[InMessage, None],
        name: str,
        *,
        input: type[InMessage],
        output: None = None,
        timeout: timedelta | None = None,
        compensation_failure_policy: CompensationFailurePolicy | None = None,
    ) -> None: ...

    @overload
    def __init__(
        self: Saga[InMessage, OutMessage],
        name: str,
        *,
        input: type[InMessage],
        output: type[OutMessage],
        timeout: timedelta | None = None,
        compensation_failure_policy: CompensationFailurePolicy | None = None,
    ) -> None: ...

    def __init__(
        self,
        name: str,
        *,
        input: type[Message],  # noqa: A002 - the word that definitions use
        output: type[Message] | None = None,
        timeout: timedelta | None = None,
        compensation_failure_policy: CompensationFailurePolicy | None = None,
    ) -> None:
        """Begins the description of a saga.

        Arguments:
            name: `[a-z][a-z0-9_-]{0,63}`. Versions of one saga share it.
            input: the message class of its input.
            output: the message class of its output; left out if it has none. With it, `output` has to be called.
            timeout: how long it may run before its point of no return; then it rolls back. Default: 1 h.
            compensation_failure_policy: default `CONTINUE`.
        """
        if not _SAGA_NAME.fullmatch(name):
            raise DefinitionError(
                f"a saga can't be called {name!r}: small letters, digits, '_' and '-', a letter first, at most 64"
            )
        check_duration(f"saga {name!r}: timeout", timeout)
        _check_message_class(f"saga {name!r}: input", input)
        if output is not None:
            _check_message_class(f"saga {name!r}: output", output)
        self.name, self.input_type, self.output_type = name, input, output
        self.timeout, self.compensation_failure_policy = timeout, compensation_failure_policy
        self.output_template: Template | None = None
        # `Any`: each step has a request and a response type of its own.
        self._steps: list[Step[Any, Any]] = []
        self._scope = Scope(name)
        self._built: _Built | None = None

    def __repr__(self) -> str:
        return f"<saga {self.name!r}: {', '.join(step.name for step in self._steps) or 'no steps yet'}>"

    @property
    def steps(self) -> tuple[Step[Any, Any], ...]:
        """The steps described so far, in their order."""
        return tuple(step for step in self._steps if not step.begins_once_compensated)

    @property
    def steps_once_compensated(self) -> tuple[Step[Any, Any], ...]:
        """The `on_compensated` steps described so far, in their order."""
        return tuple(step for step in self._steps if step.begins_once_compensated)

    @property
    def input(self) -> In:
        """The saga's input, as a reference: name its fields to use them in calls; alone it is the whole input."""
        return cast("In", message_reference(self._scope, "input", "", descriptor_of(self.input_type)))

    @property
    def id(self) -> str:
        """The saga's id, as a reference to a string."""
        return saga_reference(self._scope, "SAGA_ID")

    @property
    def key(self) -> str:
        """The idempotency key of the call that is built, as a reference: the same on every attempt."""
        return saga_reference(self._scope, "KEY")

    @property
    def key_uuid(self) -> str:
        """The same key as a UUID in text, for providers that want one; as a reference."""
        return saga_reference(self._scope, "KEY_UUID")

    @property
    def action_key(self) -> str:
        """The idempotency key that the step's action was called with, as a reference; for compensations and lookups."""
        return saga_reference(self._scope, "ACTION_KEY")

    @property
    def action_key_uuid(self) -> str:
        """The action's key as a UUID in text; as a reference."""
        return saga_reference(self._scope, "ACTION_KEY_UUID")

    @property
    def failure(self) -> FailureReference:
        """Why the saga rolls back; its fields are references, for compensations and `on_compensated` steps."""
        return FailureReference(self._scope)

    def step(  # noqa: PLR0913 - each option has a default and is given by name
        self,
        name: str,
        call: Call[Req, Res],
        *,
        after: Sequence[Step[Any, Any]] | None = None,
        timeout: timedelta | None = None,
        retry: Retry | None = None,
        codes: Codes | None = None,
        idempotency_window: timedelta | None = None,
        participant: str = "",
        guarantee: Guarantee | None = None,
        on_unknown: OnUnknown | None = None,
        settle_delay: timedelta | None = None,
        at_most_once: bool = False,
    ) -> Step[Req, Res]:
        """Adds a step that can be undone. Say how with `Step.compensated_by`, if its method's annotation doesn't.

        Arguments:
            name: `[a-z][a-z0-9_]{0,63}`, unique in this saga.
            call: the forward call: a `Method` called with the fields of its request.
            after: the steps that must have succeeded before; `()`: none. Default: every step so far that nothing
                follows yet.
            timeout: the deadline of one attempt, 1 ms to 1 h. Default: the method's annotation, else 5 s.
            retry: how the call is repeated while it doesn't answer clearly.
            codes: what its status codes mean, where that isn't the usual.
            idempotency_window: how long its method remembers a key; afterwards nothing is repeated with that key.
                Default: the annotation's, else for ever.
            participant: the participant that serves it, all its calls: a name, or a string of the input
                (`saga.input.bank`) that chooses it anew for each saga. Default: the one that announces the method's
                service; where two do, name one.
            guarantee: what the methods of all its calls promise about repeated calls, where a call doesn't say it
                itself. Default: each method's annotation, else `Guarantee.KEY`.
            on_unknown: what is decided when nothing more can be learnt about it. Default: `OnUnknown.COMPENSATE`.
            settle_delay: how long after its last attempt's deadline a lookup that finds nothing is believed although
                it seals nothing. Needs a lookup. Default: never.
            at_most_once: it isn't called again once an attempt ended unknown.

        Raises:
            DefinitionError: the name is taken or no name, the step can't stand here, or its call uses what it can't.
        """
        said = CallOptions(timeout=timeout, retry=retry, codes=codes, idempotency_window=idempotency_window)
        options = StepOptions(
            participant=participant,
            guarantee=guarantee,
            on_unknown=on_unknown,
            settle_delay=settle_delay,
            at_most_once=at_most_once,
        )
        return self._add(NewStep(self.name, name, StepKind.COMPENSATABLE), StepCall(call, said), after, options)

    def read_only(  # noqa: PLR0913 - each option has a default and is given by name
        self,
        name: str,
        call: Call[Req, Res],
        *,
        after: Sequence[Step[Any, Any]] | None = None,
        timeout: timedelta | None = None,
        retry: Retry | None = None,
        codes: Codes | None = None,
        idempotency_window: timedelta | None = None,
        participant: str = "",
        guarantee: Guarantee | None = None,
    ) -> Step[Req, Res]:
        """Adds a step that changes nothing, so nothing is undone; it may stand anywhere. Arguments: see `step`."""
        said = CallOptions(timeout=timeout, retry=retry, codes=codes, idempotency_window=idempotency_window)
        options = StepOptions(participant=participant, guarantee=guarantee)
        return self._add(NewStep(self.name, name, StepKind.READ_ONLY), StepCall(call, said), after, options)

    def pivot(  # noqa: PLR0913 - each option has a default and is given by name
        self,
        name: str,
        call: Call[Req, Res],
        *,
        after: Sequence[Step[Any, Any]] | None = None,
        timeout: timedelta | None = None,
        retry: Retry | None = None,
        codes: Codes | None = None,
        idempotency_window: timedelta | None = None,
        participant: str = "",
        guarantee: Guarantee | None = None,
        at_most_once: bool = False,
    ) -> Step[Req, Res]:
        """Adds the point of no return: after it the saga only goes forward. At most one.

        It waits for every step that can be refused. Arguments: see `step`.
        """
        said = CallOptions(timeout=timeout, retry=retry, codes=codes, idempotency_window=idempotency_window)
        options = StepOptions(participant=participant, guarantee=guarantee, at_most_once=at_most_once)
        return self._add(NewStep(self.name, name, StepKind.PIVOT), StepCall(call, said), after, options)

    def retriable(  # noqa: PLR0913 - each option has a default and is given by name
        self,
        name: str,
        call: Call[Req, Res],
        *,
        after: Sequence[Step[Any, Any]] | None = None,
        timeout: timedelta | None = None,
        retry: Retry | None = None,
        codes: Codes | None = None,
        idempotency_window: timedelta | None = None,
        participant: str = "",
        guarantee: Guarantee | None = None,
    ) -> Step[Req, Res]:
        """Adds a step behind the point of no return, repeated until it succeeds. Arguments: see `step`."""
        said = CallOptions(timeout=timeout, retry=retry, codes=codes, idempotency_window=idempotency_window)
        options = StepOptions(participant=participant, guarantee=guarantee)
        return self._add(NewStep(self.name, name, StepKind.RETRIABLE), StepCall(call, said), after, options)

    def on_compensated(  # noqa: PLR0913 - each option has a default and is given by name
        self,
        name: str,
        call: Call[Req, Res],
        *,
        after: Sequence[Step[Any, Any]] | None = None,
        timeout: timedelta | None = None,
        retry: Retry | None = None,
        codes: Codes | None = None,
        idempotency_window: timedelta | None = None,
        participant: str = "",
        guarantee: Guarantee | None = None,
    ) -> Step[Req, Res]:
        """Adds a step that begins once the saga has been compensated: to tell those whom it concerns.

        It is repeated until it succeeds. It can say why (`failure`), and what the saga had done: what of that never
        happened leaves its field empty. Arguments: see `step`; `after` names only steps that were added so, and without
        it they run one after another.
        """
        said = CallOptions(timeout=timeout, retry=retry, codes=codes, idempotency_window=idempotency_window)
        options = StepOptions(participant=participant, guarantee=guarantee)
        return self._add(
            NewStep(self.name, name, StepKind.RETRIABLE, begins_once_compensated=True),
            StepCall(call, said),
            after,
            options,
        )

    def output(self, message: Callable[P, Out]) -> Callable[P, None]:
        """Says how the saga's output is built when it commits: `order.output(OrderPlaced)(shipment_id=...)`.

        Arguments:
            message: the message class that was given as `output=` of the saga.

        Returns:
            A function that takes the output's fields by name: references, or literals of the field's type.

        Raises:
            DefinitionError: it is another class, the output was said already, or a field gets what it can't take.
        """
        given = getattr(getattr(message, "DESCRIPTOR", None), "full_name", repr(message))
        wanted = self.output_type
        if wanted is None:
            raise DefinitionError(
                f"saga {self.name!r} has no output: give it one with Saga(..., output={given.split('.')[-1]})"
            )
        if given != wanted.DESCRIPTOR.full_name:
            raise DefinitionError(f"saga {self.name!r} has the output {wanted.DESCRIPTOR.full_name}, not {given}")

        def take(*args: P.args, **kwargs: P.kwargs) -> None:
            self._set_output(make_template(wanted, f"output of saga {self.name!r}", args, kwargs))

        return take

    def definition(self) -> saga_definition_pb2.SagaDefinition:
        """This saga as data, with the descriptors that it needs; the same description always gives the same message.

        Raises:
            DefinitionError: something is missing; all missing things are named at once.
        """
        return saga_definition_pb2.SagaDefinition.FromString(self._build().content)

    def fingerprint(self) -> str:
        """A digest of the definition's content: equal descriptions have equal ones. Raises like `definition`."""
        return self._build().fingerprint

    def _build(self) -> _Built:
        # Building takes about a millisecond and every start needs it, so it is kept until the description changes.
        if self._built is None or self._built.changes != self._scope.changes:
            content = build_definition(self).SerializeToString(deterministic=True)
            self._built = _Built(self._scope.changes, content, hashlib.sha256(content).hexdigest())
        return self._built

    def _add(
        self, new: NewStep, action: StepCall, after: Sequence[Step[Any, Any]] | None, options: StepOptions
    ) -> Step[Any, Any]:
        where = f"step {new.name!r}"
        check_call(action.call, where)
        check_name(new, self._steps)
        followed = followed_by(new, self._steps, after)
        if not new.begins_once_compensated:
            check_order(new, self._steps, followed)
        action.options.check(where)
        check_duration(f"{where}: settle_delay", options.settle_delay)
        participant, participant_input = participant_of(self._scope, options.participant, where)
        check_sources(self._scope, action.call.template.sources, where, self._readable(new, followed))
        step = Step[Any, Any](
            self._scope,
            new.name,
            new.kind,
            action,
            after=followed,
            options=replace(options, participant=participant, participant_input=participant_input),
            begins_once_compensated=new.begins_once_compensated,
        )
        self._steps.append(step)
        self._scope.changes += 1
        return step

    def _readable(self, new: NewStep, followed: Sequence[Step[Any, Any]]) -> Readable:
        if not new.begins_once_compensated:
            return Readable(steps=ancestors_of(followed))
        before = frozenset(step.name for step in self.steps)
        return Readable(steps=before | ancestors_of(followed), failure=True)

    def _set_output(self, template: Template) -> None:
        where = f"output of saga {self.name!r}"
        if self.output_template is not None:
            raise DefinitionError(f"the {where} was said already: say it once, with all its fields")
        for target, source in template.sources:
            if source.root == "saga" and source.path != ("SAGA_ID",):
                raise DefinitionError(
                    f"{where}: {target} is filled from {source}, but an output belongs to no call and has no key"
                )
        check_sources(self._scope, template.sources, where, Readable(steps=frozenset(step.name for step in self.steps)))
        self.output_template = template
        self._scope.changes += 1


def _check_message_class(what: str, given: object) -> None:
    if isinstance(given, Message):
        raise DefinitionError(f"{what} is a message: pass its class, {given.DESCRIPTOR.name}")
    if not (isinstance(given, type) and issubclass(given, Message)):
        raise DefinitionError(f"{what} is {given!r}: pass a generated message class, for example PlaceOrder")
