"""The step that a handler is carrying out, as the coordinator's metadata tells it (semantics: the call)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Mapping
from contextlib import contextmanager
from contextvars import ContextVar, Token
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, NewType, TypeVar, cast

from google.protobuf import descriptor_pool, message_factory

from amends.participant.refusals import NotInStep

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    from google.protobuf.message import Message

    from amends.participant.arrived_call import Call
    from amends.participant.guards import Guard, SyncGuard

SagaId = NewType("SagaId", str)
"""Chosen by whoever started the saga."""

StepName = NewType("StepName", str)
"""Unique in its saga."""

IdempotencyKey = NewType("IdempotencyKey", str)
"""`{saga_id}/{step}/{direction}`: the same for every attempt of one step and direction (S2)."""

Word = TypeVar("Word", bound=StrEnum)

KEY = "idempotency-key"
KEY_UUID = "amends-key-uuid"
LEDGER = "amends-ledger"
SAGA_ID = "amends-saga-id"
STEP = "amends-step"
KIND = "amends-kind"
DIRECTION = "amends-direction"
ATTEMPT = "amends-attempt"
STEP_TIME = "amends-step-time"
ACTION_KEY = "amends-action-key"
ACTION_KEY_UUID = "amends-action-key-uuid"
ACTION_TARGET = "amends-action-target"
IN_EVERY_STEP = (SAGA_ID, KEY, KEY_UUID, LEDGER, STEP, KIND, DIRECTION, ATTEMPT)
ABORT_REASON_LIMIT_BYTES = 512
LONGEST_DEADLINE_S = 7 * 24 * 3600.0
"""gRPC's synchronous server has no word for "no deadline": it tells of one in some hundred billion years."""


class Direction(StrEnum):
    """The side of a step that a call belongs to."""

    ACTION = "action"
    COMPENSATION = "compensation"
    LOOKUP = "lookup"


class StepKind(StrEnum):
    """What the step is with respect to the saga's point of no return."""

    COMPENSATABLE = "compensatable"
    READ_ONLY = "read_only"
    PIVOT = "pivot"
    RETRIABLE = "retriable"


class ActionTarget(StrEnum):
    """On a compensation: whether it was this participant that was called with the action."""

    SAME = "same"
    OTHER = "other"


_KINDS: Mapping[str, StepKind] = {kind.value: kind for kind in StepKind}
_DIRECTIONS: Mapping[str, Direction] = {direction.value: direction for direction in Direction}
_TARGETS: Mapping[str, ActionTarget] = {target.value: target for target in ActionTarget}


class ServedCall(NamedTuple):
    """What carries out a call and listens to its guard: without one no guard may be opened.

    Attributes:
        participant: who serves it.
        method: "package.Service/Method".
        request: the request's bytes, as they came.
        threaded: whether the handler is a plain `def`, whose guard is a `SyncGuard`; else it is a `Guard`.
    """

    participant: str
    method: str
    request: bytes
    threaded: bool


class CallState:
    """What changes while a call is carried out; everything else about it is fixed when it arrives."""

    # Of the class until somebody writes them: most calls never do, and every call of a step has such a state.
    abort_reason: bytes | None = None
    answered: bool = False
    guard: Guard | SyncGuard | None = None
    serving: tuple[str, Call] | None = None
    stored_action: StoredAction | None = None

    @property
    def served(self) -> ServedCall | None:
        """The call that is being carried out, and by whom; None where nobody does, as in a test of a handler."""
        if self.serving is None:
            return None
        participant, call = self.serving
        return ServedCall(participant, call.method.name, call.request.sent, threaded=call.method.plain)


@dataclass(frozen=True, slots=True)
class StoredAction:
    """What a guard found of the action that a compensation undoes: "package.Service/Method", the response's bytes."""

    method: str
    response: bytes


FACTS = (
    "saga_id",
    "step",
    "key",
    "key_uuid",
    "ledger",
    "kind",
    "direction",
    "attempt",
    "action_key",
    "action_key_uuid",
    "action_target",
    "step_time",
    "traceparent",
    "tracestate",
)
"""What two contexts of the same attempt have in common."""


_known_as: Callable[[tuple[str, str]], Hashable] = hash if sys.hash_info.width >= 64 else tuple
"""What stands for a ledger's name and a key in this process: 64 bits of both, with a secret of the process, so that
nobody meets another key with the same number by chance. Where Python's hashes are shorter than that, both themselves.
"""


def _no_deadline() -> float | None:
    return None


class StepContext:
    """One attempt of one call of a step, as the call's metadata tells of it: `from_metadata` reads it.

    Attributes:
        state: what changes while the call is carried out.
        remaining: seconds until the call's deadline, as gRPC says it.
        ledger_key: what this process knows the call by, see `_known_as`.
        ledger_key_of_action: the same of the action that a compensation or a lookup is about; None on an action.
    """

    # Read-only by properties, and no frozen dataclass, which takes longer to make: every call makes one.
    __slots__ = (
        "_attempt",
        "_direction",
        "_kind",
        "_said",
        "_step_time",
        "_target",
        "ledger_key",
        "ledger_key_of_action",
        "remaining",
        "state",
    )

    def __init__(self, said: Mapping[str, str | bytes], remaining: Callable[[], float | None]) -> None:
        """Reads at once what could be wrong, before anything runs; the rest when somebody asks for it.

        Raises:
            KeyError, ValueError: the metadata is incomplete or malformed.
        """
        for name in IN_EVERY_STEP:
            if not isinstance(said[name], str):
                raise KeyError(name)
        texts = cast("Mapping[str, str]", said)
        self._said, self.remaining, self.state = said, remaining, CallState()
        self._attempt = int(texts[ATTEMPT])
        if self._attempt < 1:
            raise ValueError(f"{ATTEMPT} is {self._attempt}, it counts from 1")
        self._kind, self._direction = _word(_KINDS, texts[KIND]), _word(_DIRECTIONS, texts[DIRECTION])
        target, step_time = text_in(said, ACTION_TARGET), text_in(said, STEP_TIME)
        self._target = _word(_TARGETS, target) if target else None
        self._step_time = datetime.fromisoformat(step_time) if step_time else None
        self.ledger_key = _known_as((texts[LEDGER], texts[KEY]))
        action_key = text_in(said, ACTION_KEY)
        self.ledger_key_of_action = _known_as((texts[LEDGER], action_key)) if action_key else None

    @property
    def attempt(self) -> int:
        """Counts from 1."""
        return self._attempt

    @property
    def kind(self) -> StepKind:
        """Of the step."""
        return self._kind

    @property
    def direction(self) -> Direction:
        """Whether this call is the step's action, its compensation or its lookup."""
        return self._direction

    @property
    def action_target(self) -> ActionTarget | None:
        """On a compensation whether this participant was called with the action, else None."""
        return self._target

    @property
    def step_time(self) -> datetime | None:
        """When the action's first attempt was announced, by the ledger's clock."""
        return self._step_time

    @property
    def saga_id(self) -> SagaId:
        """The saga."""
        return SagaId(text_in(self._said, SAGA_ID))

    @property
    def step(self) -> StepName:
        """The step's name."""
        return StepName(text_in(self._said, STEP))

    @property
    def key(self) -> IdempotencyKey:
        """The idempotency key: do the work of one key once, however often it is called."""
        return IdempotencyKey(text_in(self._said, KEY))

    @property
    def key_uuid(self) -> str:
        """The key as a UUID (version 5, from the ledger's name and the key), for providers that want one."""
        return text_in(self._said, KEY_UUID)

    @property
    def ledger(self) -> str:
        """The name of the coordinator's ledger; keys are unique within it."""
        return text_in(self._said, LEDGER)

    @property
    def action_key(self) -> IdempotencyKey | None:
        """On a compensation and a lookup the key that the action was called with, else None."""
        key = text_in(self._said, ACTION_KEY)
        return IdempotencyKey(key) if key else None

    @property
    def action_key_uuid(self) -> str | None:
        """The same as a UUID."""
        return text_in(self._said, ACTION_KEY_UUID) or None

    @property
    def traceparent(self) -> str | None:
        """W3C trace context of this attempt, already the current OpenTelemetry context. None if not traced."""
        return text_in(self._said, "traceparent") or None

    @property
    def tracestate(self) -> str | None:
        """Its companion."""
        return text_in(self._said, "tracestate") or None

    def __eq__(self, other: object) -> bool:
        return self._facts() == other._facts() if isinstance(other, StepContext) else NotImplemented

    def __hash__(self) -> int:
        return hash((self.ledger, self.key, self.attempt))

    def __repr__(self) -> str:
        return f"StepContext({', '.join(f'{name}={value!r}' for name, value in self._facts().items())})"

    def _facts(self) -> dict[str, object]:
        """What it tells of the step; not what else came with the call, which may be secret."""
        return {name: getattr(self, name) for name in FACTS}

    @classmethod
    def from_metadata(
        cls,
        metadata: Iterable[tuple[str, str | bytes]],
        *,
        time_remaining: Callable[[], float | None] = _no_deadline,
    ) -> StepContext:
        """Read a call's metadata, as `context.invocation_metadata()` gives it.

        Args:
            metadata: keys and values; of repeated keys the last counts.
            time_remaining: seconds until the call's deadline; None where there is no deadline.

        Raises:
            NotInStep: the call is not a step of a saga, or its metadata is incomplete or malformed.
        """
        step = step_of(by_key(metadata), time_remaining=time_remaining)
        if step is None:
            raise NotInStep(
                f"this call is not a step of a saga: it carries no {KEY} with {SAGA_ID}; "
                "only calls made by a coordinator do"
            )
        return step

    @property
    def action_response(self) -> Message | None:
        """On a compensation below a barrier that knows the action: what the action answered. None everywhere else.

        Raises:
            NotInStep: this process has not loaded the proto of the action's method.
        """
        stored = self.state.stored_action
        if stored is None:
            return None
        try:
            described = descriptor_pool.Default().FindMethodByName(stored.method.replace("/", "."))
        except KeyError:
            raise NotInStep(
                f"what {stored.method} answered is stored, but this process knows no such method: import the module "
                "generated from its proto"
            ) from None
        response: Message = message_factory.GetMessageClass(described.output_type).FromString(stored.response)
        return response

    def time_remaining(self) -> float | None:
        """Seconds until the call's deadline, at least 0; None if it has none. Hand it on to what you call."""
        remaining_s = self.remaining()
        return None if remaining_s is not None and remaining_s > LONGEST_DEADLINE_S else remaining_s

    def abort_saga(self, reason: str) -> None:
        """Ask for the saga to be rolled back although this call succeeds; then return normally.

        The step counts as succeeded and is compensated too. Called again, the last reason counts. It has no effect if
        the handler ends with an exception, and on a pivot or retriable step it only tells an operator.

        Args:
            reason: for people. Cut after 512 bytes of UTF-8, between two characters.

        Raises:
            NotInStep: the call was answered already.
        """
        if self.state.answered:
            raise NotInStep(
                f"step {self.step!r} of saga {self.saga_id!r} was answered already, so it can't abort the saga: "
                "call abort_saga before the handler returns"
            )
        self.state.abort_reason = cut_utf8(reason, ABORT_REASON_LIMIT_BYTES)


def by_key(metadata: Iterable[tuple[str, str | bytes]]) -> dict[str, str | bytes]:
    """What came with a call; of repeated keys the last value."""
    return dict(iter(metadata))  # `dict` alone would take gRPC's own type for a mapping, which it only resembles


def step_of(said: Mapping[str, str | bytes], *, time_remaining: Callable[[], float | None]) -> StepContext | None:
    """The step that a call's metadata tells of; None if the call isn't a coordinator's.

    Raises:
        NotInStep: the metadata is incomplete or malformed.
    """
    # A call with all but the key is a coordinator's, and somebody on the way took the key out: it must not run without.
    if SAGA_ID not in said or (KEY not in said and ATTEMPT not in said):
        return None
    try:
        return StepContext(said, time_remaining)
    except (KeyError, ValueError) as problem:
        raise NotInStep(
            f"this call's metadata is incomplete or malformed ({_told(problem)}): "
            "the coordinator and this participant speak different versions"
        ) from problem


def cut_utf8(text: str, limit_bytes: int) -> bytes:
    """The text as UTF-8 of at most `limit_bytes`, cut between two characters; what UTF-8 can't hold becomes "?"."""
    return text.encode("utf-8", "replace")[:limit_bytes].decode("utf-8", "ignore").encode("utf-8")


_current: ContextVar[StepContext] = ContextVar("amends_current_step")


def current_step() -> StepContext:
    """The step that the running handler carries out.

    Works in the handler and in everything it awaits, also in tasks and `asyncio.to_thread`.

    Raises:
        NotInStep: there is none.
    """
    try:
        return _current.get()
    except LookupError:
        raise NotInStep(
            "there is no current step: current_step() works only while a ParticipantServer, or a "
            "StepInterceptor of your own server, carries out a coordinator's call; in a test, call the handler inside "
            "`with step_context(StepContext.from_metadata(...)):`"
        ) from None


@contextmanager
def step_context(step: StepContext) -> Generator[StepContext]:
    """Make a step the current one for the block, and mark it as answered at the end."""
    token = enter(step)
    try:
        yield step
    finally:
        leave(step, token)


def enter(step: StepContext) -> Token[StepContext]:
    """Make a step the current one until `leave`."""
    return _current.set(step)


def leave(step: StepContext, token: Token[StepContext]) -> None:
    """Undo `enter`, whose answer is `token`, and mark the step as answered."""
    _current.reset(token)
    step.state.answered = True


def text_in(said: Mapping[str, str | bytes], name: str) -> str:
    """What the metadata says under a name; "" if it says nothing, or says it in bytes."""
    text = said.get(name, "")
    return text if isinstance(text, str) else ""


def _word(words: Mapping[str, Word], text: str) -> Word:
    """The word that a text says, looked up: every call says three, and calling an `Enum` takes its time."""
    word = words.get(text) or words.get(text.lower())
    if word is None:
        raise ValueError(f"{text!r} is none of {', '.join(words)}")
    return word


def _told(problem: Exception) -> str:
    return f"{problem.args[0]} is missing" if isinstance(problem, KeyError) else str(problem)
