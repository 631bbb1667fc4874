"""The port to participants: one call, one answer.

Guarantees of every adapter:

* `call` never raises for anything that a participant or the network does: whatever happens is an `Answer` whose outcome
  says what it proves (unknown where nothing is proven).
* An answer with the outcome `NOT_SENT` means that the request was never handed to a channel, or that the participant
  said
  it did not begin.
* No instance is given more calls at once than it states; a call waits in its turn for a slot, for at most its own
  timeout, and is then `NOT_SENT`.
* An answer with the outcome `SUCCEEDED` carries bytes that parse as the method's response type.
* Cancelling the awaiting task cancels the call at the participant.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from amends_coordinator.core.ids import IdempotencyKey, Instant, SagaId, StepName
from amends_coordinator.core.states import Direction, StepKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from amends_coordinator.core.answer import Answer


FULL = "PARTICIPANT_FULL"
"""The reason of an answer `NOT_SENT` where every instance had as many calls under way as it takes. It says nothing
about whether the participant answers."""


class CallRequest(NamedTuple):
    """One attempt of one call, with everything that its metadata says.

    A tuple, because every call makes one and a frozen dataclass of this size takes three times as long.

    `method` is "package.Service/Method"; `participant` the name that serves it ("": nobody does, or several do: then it
    isn't sent); `deadline_time` ends it, later by the time for which it waited for a slot at a full participant, but
    never later than `saga_deadline_time`, where there is one; `action_key` is set on a compensation and a lookup;
    `action_participant`, the participant that has the action ("": not known), on a compensation; `step_time` is when
    the action's first attempt was announced; `parses` tells whether bytes parse as the method's response type.
    """

    saga_id: SagaId
    step: StepName
    direction: Direction
    kind: StepKind
    method: str
    participant: str
    key: IdempotencyKey
    attempt: int
    request: bytes
    timeout_us: int
    deadline_time: Instant
    step_time: Instant
    action_key: IdempotencyKey | None
    action_participant: str | None
    traceparent: str
    tracestate: str
    parses: Callable[[bytes], bool]
    saga_deadline_time: Instant | None = None


class Participants(Protocol):
    """Calls participants. See the module's guarantees."""

    async def call(self, request: CallRequest) -> Answer:
        """Make one attempt, within its timeout, and say what its answer proves."""
        ...

    def withdraw(self, key: IdempotencyKey) -> None:
        """Have the call of this key end at once, `NOT_SENT`, if it still waits for a slot. Safe to repeat."""
        ...
