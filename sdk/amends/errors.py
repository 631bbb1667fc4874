"""Every error that the SDK raises to those who define, start and follow sagas, under one root."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    import grpc

    from amends.results import Committed, Compensated, CompensationFailed


class AmendsError(Exception):
    """The root of every error of this package. Catch it to catch them all; its children say what to do."""


class DefinitionError(AmendsError):
    """The code that describes a saga says something that can't be: raised on the line that says it.

    What to do: correct that line; the message names the saga, the step, the field and what would be right. Nothing was
    sent to a coordinator.
    """


class UnknownFieldError(DefinitionError, AttributeError):
    """A message type has no field of the name that was used. What to do: use one of those that the message lists."""


class NotAValueError(DefinitionError, TypeError):
    """A reference was used as if it were a value: in an `if`, an f-string, a sum, a loop.

    A definition only names fields; their values exist once a saga runs. What to do: compute before `start()` and put
    the result into the input, or compute in the participant.
    """


class WrongMessageError(AmendsError, TypeError):
    """A message of another type was given than the saga takes. What to do: give one of the type that is named."""


class InvalidAddressError(AmendsError, ValueError):
    """A client was given an address that can't be a coordinator's. What to do: write "host:port"; nothing was sent."""


class ClientClosedError(AmendsError):
    """The client isn't open. What to do: use it inside `async with SagaClient(...) as client:`, as long as it takes."""


@dataclass(frozen=True, slots=True)
class FieldFault:
    """One field of a request that the coordinator refused."""

    path: str
    """Where: the field's path in the request, for example "steps[1].action.method"."""
    description: str
    """What is wrong with it, in words."""


class CoordinatorError(AmendsError):
    """The coordinator refused a request, or could not be asked.

    Attributes:
        message: what went wrong, in words.
        reason: one word to decide by: a value of `amends.v1.ErrorReason` without its prefix, for example
            "SAGA_ID_IN_USE". Where no coordinator answered it is "NO_COORDINATOR" or "NO_ANSWER"; where something
            else answered, "NOT_A_COORDINATOR"; where the answer isn't known to us, "UNKNOWN".
        status_code: the gRPC status code.
        fields: the refused fields with their paths; empty if no field is at fault.
        what_to_do: the next step, in words; empty where the message says it.
        retry_delay: how long the coordinator asks to wait before the next try, if it does.
    """

    def __init__(
        self,
        message: str,
        *,
        reason: str,
        status_code: grpc.StatusCode,
        fields: Sequence[FieldFault] = (),
        what_to_do: str = "",
        retry_delay: timedelta | None = None,
    ) -> None:
        self.message, self.reason, self.status_code = message, reason, status_code
        self.fields, self.what_to_do, self.retry_delay = tuple(fields), what_to_do, retry_delay
        # The coordinator's message may list the fields already; a long one is cut off, the fields never are.
        unsaid = [fault for fault in self.fields if fault.description not in message]
        lines = [f"{message} [{reason}]", *(f"  {fault.path}: {fault.description}" for fault in unsaid)]
        super().__init__("\n".join([*lines, what_to_do] if what_to_do else lines))


class InvalidRequestError(CoordinatorError):
    """The request is malformed, or a payload isn't of the type it should be. What to do: correct the named `fields`."""


class InvalidDefinitionError(CoordinatorError):
    """The definition has faults; `fields` names all of them. What to do: correct them and start again."""


class SagaNotFoundError(CoordinatorError):
    """No saga has this id. What to do: check the id and the coordinator's address."""


class DefinitionNotFoundError(CoordinatorError):
    """The coordinator doesn't know the definition. What to do: register it, which `SagaClient.start` does by itself."""


class SagaIdInUseError(CoordinatorError):
    """The id was used with another definition or another input; that saga is unchanged. What to do: use a new id."""


class PastPointOfNoReturnError(CoordinatorError):
    """The saga can't be aborted any more; it only goes forward, and nothing was changed.

    What to do: wait for its end, and undo what it did with a saga of its own if it isn't wanted after all.
    """


class CoordinatorUnavailableError(CoordinatorError):
    """No coordinator answered, or it can't work just now. What to do: see `what_to_do`; repeating is safe.

    After `SagaClient.start` the saga may have begun all the same: start it again with the id that the message names.
    """


class NotACoordinatorError(CoordinatorError):
    """What listens at the address is no amends coordinator, or an older one. What to do: check the address."""


class NotYetError(CoordinatorError):
    """The coordinator knows the request but can't carry it out in this release. What to do: use a newer one."""


class UnreadableAnswerError(AmendsError):
    """The coordinator's answer isn't what was expected, for example an output of another type.

    What to do: see that client and coordinator are of compatible releases, and that the id is one of this saga's.
    """


class OutputPurgedError(UnreadableAnswerError):
    """The saga committed so long ago that its output isn't kept any more: retention has removed it. Nothing ran again.

    What to do: take it as committed, with `end`. Whoever needs outputs for longer stores them, or has the coordinator
    keep sagas for longer (`AMENDS_RETENTION_S`).
    """

    def __init__(self, end: Committed[None]) -> None:
        super().__init__(
            f"saga {end.saga_id!r} committed, but its output isn't kept any more: retention has removed it; nothing "
            "ran again"
        )
        self.end = end


class WaitTimeoutError(AmendsError, TimeoutError):
    """The saga had not ended when the time given to `wait` or `result` was over. It goes on regardless.

    What to do: wait again, later and from anywhere: `client.handle(saga, saga_id).wait()`.
    """


class SagaCompensated(AmendsError):
    """Raised by `SagaHandle.result`: the saga was rolled back, everything it did is undone.

    What to do: treat the saga as not having happened; `end.reason` says why. Start anew under a new id if it is wanted
    after all.
    """

    def __init__(self, end: Compensated) -> None:
        super().__init__(f"saga {end.saga_id!r} was rolled back: {end.failure}")
        self.end = end


class SagaCompensationFailed(AmendsError):
    """Raised by `SagaHandle.result`: the saga rolls back and can't go on without a person.

    What to do: don't start it again; an operator settles `end.dead_letters`, after which `wait` tells the end.
    """

    def __init__(self, end: CompensationFailed) -> None:
        left = ", ".join(f"{letter.step} {letter.direction} ({letter.reason})" for letter in end.dead_letters)
        super().__init__(
            f"saga {end.saga_id!r} could not be rolled back ({end.failure}); "
            f"a person has to settle: {left or 'see the saga'}"
        )
        self.end = end
