"""A handle to one saga: waits for its end and tells it with the saga's own types."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from google.protobuf.message import DecodeError, Message
from google.protobuf.wrappers_pb2 import BytesValue

from amends.descriptors import descriptor_of
from amends.errors import OutputPurgedError, SagaCompensated, SagaCompensationFailed, UnreadableAnswerError
from amends.options import check_duration
from amends.results import Committed, Compensated, CompensationFailed, OpenDeadLetter, SagaFailure
from amends.v1 import saga_pb2, saga_service_pb2
from amends.waiting import wait_for_end
from amends.watching import watch_saga

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from datetime import timedelta

    from google.protobuf.any_pb2 import Any as AnyMessage

    from amends.coordinator_calls import CoordinatorCalls
    from amends.saga import Saga

Out = TypeVar("Out", bound=Message | None)


class SagaHandle(Generic[Out]):
    """One saga that was started. Made by `SagaClient.start` and `SagaClient.handle`; usable while the client is open.

    Attributes:
        saga_id: its id, with which it can be found again from anywhere.
    """

    # `Any`: whatever the saga's input is, a handle has no more use for it.
    def __init__(self, connection: Callable[[], CoordinatorCalls], saga: Saga[Any, Out], saga_id: str) -> None:
        self.saga_id = saga_id
        self._connection, self._saga = connection, saga

    def __repr__(self) -> str:
        return f"<handle of saga {self.saga_id!r} ({self._saga.name})>"

    async def wait(self, timeout: timedelta | None = None) -> Committed[Out] | Compensated | CompensationFailed:
        """Waits until the saga has ended, or can't go on without a person, over restarts of the coordinator.

        Arguments:
            timeout: how long to wait; None: for as long as it takes, also while no coordinator answers.

        Returns:
            `Committed` with the output, `Compensated` or `CompensationFailed` with the cause; made for `match`.
            `CompensationFailed` isn't the last word: once the dead letters are settled, `wait` answers another one.

        Raises:
            WaitTimeoutError: the timeout is over; the saga goes on, wait again.
            SagaNotFoundError: no saga has this id.
            OutputPurgedError: the saga committed so long ago that its output isn't kept any more.
            UnreadableAnswerError: the output isn't of this saga's type.
        """
        check_duration("timeout", timeout)
        return self.end(await wait_for_end(self._connection(), self.saga_id, timeout))

    async def result(self, timeout: timedelta | None = None) -> Out:
        """Waits like `wait` and answers the output.

        Arguments:
            timeout: as of `wait`.

        Raises:
            SagaCompensated: the saga was rolled back; everything it did is undone.
            SagaCompensationFailed: it rolls back and waits for a person.
            WaitTimeoutError, SagaNotFoundError, OutputPurgedError, UnreadableAnswerError: as of `wait`.
        """
        end = await self.wait(timeout)
        match end:
            case Committed():
                return end.output
            case Compensated():
                raise SagaCompensated(end)
            case CompensationFailed():
                raise SagaCompensationFailed(end)

    async def get(self) -> saga_pb2.Saga:
        """The saga as it stands, with every row of its ledger; see `SagaClient.get`."""
        request = saga_service_pb2.GetSagaRequest(saga_id=self.saga_id)
        doing = f"looking at saga {self.saga_id!r}"
        return (await self._connection().call(lambda stub: stub.GetSaga, request, doing=doing)).saga

    def watch(self) -> AsyncGenerator[saga_pb2.Saga]:
        """The saga as it is, then each time it changes; see `SagaClient.watch`."""
        return watch_saga(self._connection(), self.saga_id)

    async def abort(self, reason: str = "") -> saga_pb2.Saga:
        """Asks the saga to roll back; see `SagaClient.abort`."""
        return await abort_saga(self._connection(), self.saga_id, reason)

    def end(self, saga: saga_pb2.Saga) -> Committed[Out] | Compensated | CompensationFailed:
        """An end as the coordinator tells it, with this saga's types; raises `UnreadableAnswerError` like `wait`."""
        if saga.state == saga_pb2.Saga.STATE_COMMITTED:
            return Committed(saga.saga_id, self._output(saga), purged=saga.purged)
        failure = SagaFailure(
            step=saga.failure.step,
            reason=saga.failure.reason,
            status_code=saga.failure.status_code,
            message=saga.failure.message,
        )
        if saga.state == saga_pb2.Saga.STATE_COMPENSATED:
            return Compensated(saga.saga_id, failure.reason, failure, unproven=saga.unproven, purged=saga.purged)
        return CompensationFailed(saga.saga_id, failure.reason, failure, _open_dead_letters(saga))

    def _output(self, saga: saga_pb2.Saga) -> Out:
        wanted = self._saga.output_type
        if wanted is None:
            return cast("Out", None)  # the saga's second type is None then
        output = wanted()
        try:
            if saga.output.Unpack(output) or _parse_bytes(saga.output, output):
                return cast("Out", output)  # the class is the saga's second type
        except DecodeError as error:
            raise UnreadableAnswerError(f"{self._output_of(saga)} its bytes don't parse: {error}") from error
        if saga.purged:
            raise OutputPurgedError(Committed(saga.saga_id, None, purged=True))
        found = saga.output.TypeName() or "missing"
        raise UnreadableAnswerError(f"{self._output_of(saga)} is {found}: is {saga.saga_id!r} one of these sagas?")

    def _output_of(self, saga: saga_pb2.Saga) -> str:
        wanted = self._saga.output_type
        name = descriptor_of(wanted).full_name if wanted is not None else "nothing"
        return f"the output of saga {saga.saga_id!r} ({saga.definition_name}) should be a {name}, but"


def _parse_bytes(payload: AnyMessage, output: Message) -> bool:
    """Read an output that `GetSaga` or `WatchSaga` shows as bytes, as JSON has no words for it; whether this is one."""
    raw = BytesValue()
    if not (payload.type_url.endswith(f"/{output.DESCRIPTOR.full_name}/{payload.TypeName()}") and payload.Unpack(raw)):
        return False
    output.ParseFromString(raw.value)
    return True


async def abort_saga(calls: CoordinatorCalls, saga_id: str, reason: str) -> saga_pb2.Saga:
    """The saga after it was asked to roll back; raises what `SagaClient.abort` says."""
    request = saga_service_pb2.AbortSagaRequest(saga_id=saga_id, reason=reason)
    return (await calls.call(lambda stub: stub.AbortSaga, request, doing=f"aborting saga {saga_id!r}")).saga


def _open_dead_letters(saga: saga_pb2.Saga) -> tuple[OpenDeadLetter, ...]:
    return tuple(
        OpenDeadLetter(
            dead_letter_id=letter.dead_letter_id,
            step=letter.step,
            direction=_direction(letter.direction),
            reason=_reason(letter.reason),
            last_error=letter.last_error,
        )
        for letter in saga.dead_letters
        if not letter.HasField("close_time")
    )


def _direction(value: saga_pb2.Direction.ValueType) -> str:
    if value == saga_pb2.DIRECTION_UNSPECIFIED:
        return ""
    return (
        saga_pb2.Direction.Name(value).removeprefix("DIRECTION_")
        if value in saga_pb2.Direction.values()
        else str(value)
    )


def _reason(value: saga_pb2.DeadLetter.Reason.ValueType) -> str:
    # A newer coordinator may know reasons that we don't.
    known = saga_pb2.DeadLetter.Reason
    return known.Name(value).removeprefix("REASON_") if value in known.values() else str(value)
