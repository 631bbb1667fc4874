"""Sends one attempt over a channel, and reads whatever it ends with as an answer. It never raises but for being
cancelled: what it can't know is an outcome, too.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import grpc.aio

from amends_coordinator.calls.answers import error_answer, no_answer, ok_answer
from amends_coordinator.calls.metadata import call_metadata
from amends_coordinator.core.answer import Answer
from amends_coordinator.core.states import Outcome
from amends_coordinator.core.text import clean_text

if TYPE_CHECKING:
    from amends_coordinator.calls.unary_call import Caller
    from amends_coordinator.ports.participants import CallRequest

NOT_ENOUGH_TIME_US = 500
"""A call with less time than this left is not sent: some handlers would begin although nobody waits any more. Half of
the shortest timeout that a definition may have, or such a call would never be sent."""
NEARLY = 0.9
"""Of its timeout a call has waited this share when its deadline ends it; gRPC has a clock of its own."""


async def send(
    caller: Caller,
    request: CallRequest,
    *,
    timeout_s: float,
    ledger_name: str,
    limit_bytes: int,
    secret: tuple[tuple[str, str], ...] = (),
) -> Answer:
    """Make one attempt.

    Args:
        caller: what calls the request's method.
        request: the attempt.
        timeout_s: its deadline, in seconds from now.
        ledger_name: the ledger's name; keys are scoped by it.
        limit_bytes: the largest response.
        secret: headers that only this participant gets; no error repeats them.
    """
    metadata = call_metadata(request, ledger_name=ledger_name, action_target=_action_target(request))
    if secret:
        metadata.extend(secret)
    began_s = asyncio.get_running_loop().time()
    try:
        response, trailers = await caller(request.request, timeout_s, metadata)
    except grpc.aio.AioRpcError as error:
        waited_s = asyncio.get_running_loop().time() - began_s
        if _is_our_deadline(error) and waited_s > timeout_s * NEARLY:
            return no_answer(timeout_s)
        return error_answer(error, sent=secret)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        return Answer(outcome=Outcome.UNKNOWN, status_code="CANCELLED", message="the channel was closed")
    except Exception as error:  # noqa: BLE001 - the port never raises; nothing is known about such a call.
        # What went with the call may be a secret, and gRPC's errors repeat it.
        what = type(error).__name__ if secret else repr(error)
        return Answer(outcome=Outcome.UNKNOWN, message=clean_text(f"the call failed locally: {what}"))
    return ok_answer(response, trailers, parses=request.parses, limit_bytes=limit_bytes)


def _is_our_deadline(error: grpc.aio.AioRpcError) -> bool:
    """Whether these are gRPC's own words at a deadline. A participant may pass on those of a call of its own."""
    return error.code() is grpc.StatusCode.DEADLINE_EXCEEDED and "Deadline Exceeded" in (error.details() or "")


def _action_target(request: CallRequest) -> str | None:
    """Whether the participant of a compensation is the one that has the action; None on other calls. What isn't known
    counts as another: that one finds its own work, and takes nothing for undone.
    """
    if request.action_participant is None:
        return None
    return "same" if request.participant == request.action_participant else "other"
