"""Calls participants by plain unary gRPC: their own method, their own typed request, a deadline, and our metadata."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from amends_coordinator.calls.capacity import Capacity, Slot, WithdrawnError
from amends_coordinator.calls.channels import Channels
from amends_coordinator.calls.secrets import Secrets
from amends_coordinator.calls.sending import NOT_ENOUGH_TIME_US, send
from amends_coordinator.core.answer import Answer
from amends_coordinator.core.ids import IdempotencyKey, Instant
from amends_coordinator.core.states import Direction, Outcome
from amends_coordinator.definitions.errors import listing
from amends_coordinator.ports.participants import FULL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from amends_coordinator.ports.clock import Clock
    from amends_coordinator.ports.directory import Directory
    from amends_coordinator.ports.ledger import InstanceRow
    from amends_coordinator.ports.participants import CallRequest


class UnaryParticipants:
    """The participants port over unary gRPC.

    Args:
        directory: who serves a method, and where.
        clock: the time, to keep deadlines.
        ledger_name: the ledger's name; keys are scoped by it.
        payload_limit_bytes: the largest request or response.
        connect_gate_s: how long a call waits for a ready channel before it counts as not sent, in seconds.
        secrets: certificates and tokens for static participants. None: there are none.
    """

    def __init__(
        self,
        *,
        directory: Directory,
        clock: Clock,
        ledger_name: str,
        payload_limit_bytes: int,
        connect_gate_s: float,
        secrets: Secrets | None = None,
    ) -> None:
        self._directory = directory
        self._clock = clock
        self._ledger_name = ledger_name
        self._limit_bytes = payload_limit_bytes
        self._channels = Channels(
            payload_limit_bytes=payload_limit_bytes, connect_gate_s=connect_gate_s, secrets=secrets or Secrets("")
        )
        self._turns: Counter[tuple[str, str]] = Counter()
        self._capacity = Capacity()

    async def call(self, request: CallRequest) -> Answer:
        """See `ports.participants.Participants.call`."""
        service = request.method.partition("/")[0]
        if not request.participant:
            return self._nobody_in_particular(service)
        instances = self._instances(service, request.participant)
        if not instances:
            return _not_served(service, request.participant)
        latest_time = request.deadline_time
        slot = None if self._capacity.is_waited_for(instances[0].participant) else self._free(instances)
        if slot is None:
            if (self._channels.ready_now(instances) or await self._channels.ready(instances)) is None:
                return self._not_reached(service, instances)
            asked_time = self._clock.now()
            try:
                slot = await self._wait_for_slot(request, service)
            except _LeftError:
                return _not_served(service, request.participant)
            except WithdrawnError:
                return _not_sent("it still waited for a slot when its saga began to roll back", reason=FULL)
            if slot is None:
                reached = self._channels.ready_now(instances) is not None
                return _full(instances) if reached else self._not_reached(service, instances)
            latest_time = _later(request, max(0, self._clock.now() - asked_time))
        try:
            timeout_us = min(request.timeout_us, latest_time - self._clock.now())
            if timeout_us < NOT_ENOUGH_TIME_US:
                return _not_sent("the deadline came before the call could be sent")
            return await send(
                slot.connection.caller(request.method),
                request,
                timeout_s=timeout_us / 1e6,
                ledger_name=self._ledger_name,
                limit_bytes=self._limit_bytes,
                secret=slot.connection.metadata,
            )
        finally:
            self._capacity.give_back(slot.instance)

    def withdraw(self, key: IdempotencyKey) -> None:
        """See `ports.participants.Participants.withdraw`."""
        self._capacity.withdraw(key)

    def loads(self) -> list[tuple[str, int, int]]:
        """Participants with how many calls are under way and how many wait. May be asked from any thread."""
        return self._capacity.loads()

    async def close(self) -> None:
        """Close all channels."""
        await self._channels.close()

    def _nobody_in_particular(self, service: str) -> Answer:
        """Why no participant was chosen when the attempt was announced. One that has come since is chosen next time:
        what isn't in the ledger isn't called.
        """
        names = self._directory.serving(service)
        if len(names) > 1:
            return _not_sent(
                f"{len(names)} participants serve {service}: {listing(names)}; name one in the step (`participant`, or"
                " `participant_input`)"
            )
        return _not_sent(
            f"no participant announces {service} just now; start one (`amends participant list` shows who is there)"
        )

    def _instances(self, service: str, participant: str) -> Sequence[InstanceRow]:
        """Who serves the service; each call begins with the next instance, so that they share the work."""
        found = self._directory.instances(service=service, participant=participant)
        if len(found) < 2:
            return found
        turn = self._turns[service, participant] % len(found)
        self._turns[service, participant] += 1
        return (*found[turn:], *found[:turn])

    def _not_reached(self, service: str, instances: Sequence[InstanceRow]) -> Answer:
        return _not_sent(self._channels.secret_fault(instances) or _unreachable(service, instances))

    def _free(self, instances: Sequence[InstanceRow]) -> Slot | None:
        """A slot at the first instance that is ready and has room, if there is one."""
        for instance in instances:
            if self._capacity.has_room(instance):
                connection = self._channels.ready_to(instance)
                if connection is not None:
                    self._capacity.take(instance)
                    return Slot(instance, connection)
        return None

    async def _wait_for_slot(self, request: CallRequest, service: str) -> Slot | None:
        """A slot in the call's turn, within one attempt's timeout; None if none gets free.

        Raises:
            _LeftError: the participant doesn't serve it any more, so nobody waits behind this call.
            WithdrawnError: it isn't wanted any more.
        """
        bound_us = request.timeout_us
        if request.saga_deadline_time is not None:
            bound_us = min(bound_us, request.saga_deadline_time - self._clock.now())

        def find() -> Slot | None:
            instances = self._instances(service, request.participant)
            if not instances:
                raise _LeftError
            return self._free(instances)

        return await self._capacity.wait(
            request.participant,
            find,
            key=request.key,
            urgent=request.direction is not Direction.ACTION,
            timeout_s=max(0.0, bound_us / 1e6),
        )


class _LeftError(Exception):
    """A participant stopped serving a service while a call waited for a slot at it."""


def _unreachable(service: str, instances: Sequence[InstanceRow]) -> str:
    where = ", ".join(instance.address for instance in instances)
    secured = any(each.connection is not None and each.connection.tls is not None for each in instances)
    question = "is it running, and does its certificate fit?" if secured else "is the process running?"
    return f"no connection to {where}, which serve {service}; {question}"


def _not_sent(message: str, *, reason: str = "") -> Answer:
    return Answer(outcome=Outcome.NOT_SENT, message=message, reason=reason)


def _not_served(service: str, participant: str) -> Answer:
    return _not_sent(
        f"participant {participant} doesn't serve {service} just now; start it"
        " (`amends participant list` shows who is there)"
    )


def _full(instances: Sequence[InstanceRow]) -> Answer:
    places = sum(instance.capacity for instance in instances)
    name = instances[0].participant
    return _not_sent(
        f"participant {name} is full: it takes {places} calls at once, and none of them ended in time; "
        "start more instances, or let it take more",
        reason=FULL,
    )


def _later(request: CallRequest, waited_us: int) -> Instant:
    """When a call has to end that waited for a slot: its deadline begins when it is sent, the saga's stays."""
    deadline = Instant(request.deadline_time + waited_us)
    return deadline if request.saga_deadline_time is None else min(deadline, request.saga_deadline_time)
