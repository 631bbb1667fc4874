"""The participants port over channels that somebody else has made, one for each participant: a rehearsal's, which need
no network. Every participant takes any number of calls, and is always there.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from amends_coordinator.calls.answers import no_answer
from amends_coordinator.calls.sending import NOT_ENOUGH_TIME_US, send
from amends_coordinator.calls.unary_call import outer
from amends_coordinator.core.answer import Answer
from amends_coordinator.core.states import Outcome

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    import grpc.aio

    from amends_coordinator.core.ids import IdempotencyKey
    from amends_coordinator.ports.clock import Clock
    from amends_coordinator.ports.participants import CallRequest


class HandedChannels:
    """Calls participants over the channels that it was given.

    Args:
        channels: by the participants' names.
        clock: the time, to keep deadlines.
        ledger_name: the ledger's name; keys are scoped by it.
        limit_bytes: the largest response.
        around: stands around every call: is given the attempt and what makes it, and answers for it.
    """

    def __init__(
        self,
        channels: Mapping[str, grpc.aio.Channel],
        *,
        clock: Clock,
        ledger_name: str,
        limit_bytes: int,
        around: Callable[[CallRequest, Callable[[], Awaitable[Answer]]], Awaitable[Answer]],
    ) -> None:
        self._channels = channels
        self._clock = clock
        self._ledger_name = ledger_name
        self._limit_bytes = limit_bytes
        self._around = around

    async def call(self, request: CallRequest) -> Answer:
        """See `ports.participants.Participants.call`."""
        timeout_us = min(request.timeout_us, request.deadline_time - self._clock.now())
        if timeout_us < NOT_ENOUGH_TIME_US:
            return Answer(outcome=Outcome.NOT_SENT, message="the deadline came before the call could be sent")
        deadline = asyncio.timeout(timeout_us / 1e6)
        try:
            async with deadline:
                return await self._around(request, lambda: self._send(request))
        except TimeoutError:
            if not deadline.expired():
                raise
            return no_answer(timeout_us / 1e6)

    def withdraw(self, key: IdempotencyKey) -> None:
        """See `ports.participants.Participants.withdraw`; nothing ever waits for a slot here."""

    async def _send(self, request: CallRequest) -> Answer:
        """A request carries how long it may take, counted from its arrival: one that is late has all of its time."""
        channel = self._channels.get(request.participant)
        if channel is None:
            return Answer(outcome=Outcome.NOT_SENT, message=self._nobody(request))
        return await send(
            outer(channel.unary_unary(f"/{request.method}")),
            request,
            timeout_s=request.timeout_us / 1e6,
            ledger_name=self._ledger_name,
            limit_bytes=self._limit_bytes,
        )

    def _nobody(self, request: CallRequest) -> str:
        service = request.method.partition("/")[0]
        known = f"this rehearsal has {', '.join(self._channels) or 'none'}"
        if request.participant:
            return f"there is no participant {request.participant}; {known}"
        return f"no participant serves {service}, or several do and the step names none; {known}"
