"""What a handler raises to answer no, and what it meets when it asks for a step outside of one."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, cast

import grpc

from amends.errors import AmendsError

if TYPE_CHECKING:
    from collections.abc import Iterator

REFUSAL_CODES = frozenset(
    {
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.OUT_OF_RANGE,
        grpc.StatusCode.ALREADY_EXISTS,
    }
)
"""The codes that gRPC libraries never make themselves: only these prove that a participant said no (S4)."""


class NotDone(BaseException):
    """A handler says that nothing was done for this call. Raise one of its kinds: `Rejected` or `TryLater`.

    Like `asyncio.CancelledError` and pytest's outcomes it is no `Exception`: it is no failure that code in between
    could know how to handle, and an `except Exception` there must not turn a no into a success. What cleans up
    (`finally`, `with`) runs as ever.
    """


class Rejected(NotDone):
    """A clear, final no: nothing was done for this call, and repeating it would not help.

    Raise it before anything is done, or where raising it undoes what was done (inside the transaction). The saga rolls
    back if the step is compensatable or the pivot. On a lookup, raise it with `code=NOT_FOUND` for "not done (yet)".

    Args:
        message: for people; sent to the coordinator and shown with the saga. Cut after 1,024 bytes of UTF-8.
        reason: for programs, in UPPER_SNAKE_CASE, such as "CARD_DECLINED"; sent as `google.rpc.ErrorInfo.reason`.
        code: one of `REFUSAL_CODES`. Any other would not be read as a no, so it is a `ValueError`.
        sealed: the promise that this key will never run from now on, whatever arrives: only for participants that
            keep a durable mark of it by hand. The barrier writes that mark, and seals by itself.
    """

    def __init__(
        self,
        message: str,
        *,
        reason: str = "REJECTED",
        code: grpc.StatusCode = grpc.StatusCode.FAILED_PRECONDITION,
        sealed: bool = False,
    ) -> None:
        if code not in REFUSAL_CODES:
            allowed = ", ".join(sorted(known.name for known in REFUSAL_CODES))
            raise ValueError(
                f"{code!r} is no clear refusal, because gRPC itself makes it or because it says something else: "
                f"use one of {allowed}; for 'not now', raise TryLater"
            )
        super().__init__(message)
        # A caller without a type checker may hand on an exception as it is, and this has to arrive as a no.
        self.message, self.reason, self.code, self.sealed = str(message), str(reason), code, sealed


class TryLater(NotDone):
    """Not now: nothing was done for this call, and repeating it later can help. Counts as not sent.

    Raise it only before anything was done: the coordinator takes it as proof that the call did not begin.

    Args:
        message: for people. Cut after 1,024 bytes of UTF-8.
        retry_after: when repeating makes sense (`google.rpc.RetryInfo`), obeyed up to the step's longest back-off; None
            leaves it to the step's back-off. A negative time counts as none at all.
    """

    def __init__(self, message: str, retry_after: timedelta | None = None) -> None:
        # A caller without a type checker may take it for seconds.
        if not isinstance(retry_after, timedelta | None):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"retry_after={retry_after!r} is no timedelta")
        super().__init__(message)
        self.message, self.retry_after = str(message), retry_after


class NotInStep(AmendsError):
    """Asked for the current step where there is none, or after it was answered. The text says what to do instead."""


def refusal_in(fault: BaseException) -> BaseException:
    """The refusal that a group of exceptions comes down to, as `asyncio.TaskGroup` makes them; else the fault itself.

    It is one only where every task that ended badly refused: what else went wrong beside it may have done something, so
    that nothing is proven. Of several refusals a `Rejected` counts, and of these the first.
    """
    leaves = list(_leaves(fault))
    refusals = [leaf for leaf in leaves if isinstance(leaf, NotDone)]
    if len(refusals) < len(leaves):
        return fault
    return next((refusal for refusal in refusals if isinstance(refusal, Rejected)), refusals[0])


def _leaves(fault: BaseException) -> Iterator[BaseException]:
    if not isinstance(fault, BaseExceptionGroup):
        yield fault
        return
    group = cast("BaseExceptionGroup[BaseException]", fault)
    for each in group.exceptions:
        yield from _leaves(each)
