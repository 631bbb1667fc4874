"""Tells a person who looks on what happens, as it happens: sagas, calls, dead letters, who comes and who goes.

For a coordinator to play with (`amends dev`), not for one that is busy: each transition costs a line. What is told is
not logged besides; faults of the coordinator itself stay in the log.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from amends_coordinator.core.states import Outcome
from amends_coordinator.telemetry.happenings import (
    CallEnded,
    CallRepeated,
    CallWaits,
    DeadLetterOpened,
    Happening,
    ParticipantCame,
    ParticipantWent,
    SagaBegan,
    SagaMoved,
)
from amends_coordinator.telemetry.logs import LogTelemetry

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from amends_coordinator.core.answer import Answer
    from amends_coordinator.core.ids import Instant, StepName
    from amends_coordinator.core.saga import DeadLetter, Intent, Saga
    from amends_coordinator.core.states import Direction
    from amends_coordinator.ports.clock import Clock
    from amends_coordinator.ports.ledger import InstanceRow


@dataclass(slots=True)
class _Present:
    """An instance that is here, and until when."""

    participant: str
    address: str
    services: tuple[str, ...]
    lease_end_time: Instant


class TellingTelemetry(LogTelemetry):
    """The telemetry port, told to `tell`, which is called on the event loop and must not raise.

    Args:
        tell: hears each happening.
        clock: the time, to notice the end of leases.
    """

    def __init__(self, tell: Callable[[Happening], None], *, clock: Clock) -> None:
        super().__init__()
        self._tell = tell
        self._clock = clock
        self._present: dict[tuple[str, str], _Present] = {}
        self._waiting: dict[str, set[tuple[StepName, Direction]]] = {}

    def saga_started(self, saga: Saga) -> None:
        """A saga is durable."""
        self._tell(SagaBegan(saga_id=saga.id, definition=saga.plan.name))

    def saga_moved(self, saga: Saga) -> None:
        """A saga's state changed; it may have ended."""
        failure = saga.failure
        until = saga.updated_time if saga.ended_time is None else saga.ended_time
        self._tell(
            SagaMoved(
                saga_id=saga.id,
                state=saga.state,
                took_us=until - saga.created_time,
                unproven=saga.unproven,
                failed_step=failure.step if failure else None,
                failure_reason=failure.reason if failure else "",
                failure_message=failure.message if failure else "",
            )
        )
        if saga.state.ended:
            self._waiting.pop(saga.id, None)

    def intent_moved(self, saga: Saga, intent: Intent) -> None:
        """An intent was announced or its state changed: what begins is told once it ends."""
        attempts = intent.attempts
        if intent.in_flight:
            if len(attempts) > 1 and attempts[-1].node != attempts[-2].node:
                self._tell_repeated(saga, intent)
            return
        outcome = attempts[-1].outcome if attempts else None
        if intent.waiting and outcome in (Outcome.NOT_SENT, None):
            return  # `call_not_sent` tells of it
        self._waiting.get(saga.id, set()).discard(intent.key)
        self._tell(
            CallEnded(
                saga_id=saga.id,
                step=intent.step,
                direction=intent.direction,
                method=intent.method,
                state=intent.state,
                outcome=outcome,
                attempt=intent.attempt,
                took_us=(attempts[-1].end_time or intent.updated_time) - attempts[-1].start_time if attempts else 0,
                status_code=intent.last_code,
                said=intent.last_error,
                in_doubt=intent.unsettled,
                again_in_us=None if intent.next_attempt_time is None else intent.next_attempt_time - self._clock.now(),
            )
        )

    def call_not_sent(self, saga: Saga, step: StepName, direction: Direction, answer: Answer) -> None:
        """A call could not be sent: told once, until it is."""
        waiting = self._waiting.setdefault(saga.id, set())
        if (step, direction) in waiting:
            return
        waiting.add((step, direction))
        method = saga.plan.by_name[step].call(direction).method
        service = method.partition("/")[0]
        nobody = not any(service in each.services for each in self._present.values())
        served = {each.participant: each.services for each in self._present.values()} if nobody else {}
        self._tell(
            CallWaits(
                saga_id=saga.id,
                step=step,
                direction=direction,
                method=method,
                why=answer.message,
                nobody_serves_it=nobody,
                serving=tuple(sorted(served.items())),
            )
        )

    def dead_letter_opened(self, saga: Saga, letter: DeadLetter) -> None:
        """A person is needed."""
        self._tell(
            DeadLetterOpened(
                saga_id=saga.id,
                step=letter.step,
                direction=letter.direction,
                dead_letter_id=letter.id,
                reason=letter.reason,
                said=letter.last_error,
            )
        )

    def participant_announced(self, instance: InstanceRow, services: Sequence[str]) -> None:
        """An instance is announced: told if it is new or has moved; its lease is watched."""
        key = (instance.participant, instance.instance_id)
        before = self._present.get(key)
        here = _Present(instance.participant, instance.address, tuple(services), instance.lease_end_time)
        self._present[key] = here
        if before is None:
            self._watch_lease(key, here)
        if before is None or (before.address, before.services) != (here.address, here.services):
            self._tell(ParticipantCame(participant=here.participant, address=here.address, services=here.services))

    def participant_left(self, participant: str, instance_id: str) -> None:
        """An instance took itself out."""
        here = self._present.pop((participant, instance_id), None)
        if here is not None:
            self._tell(ParticipantWent(participant=participant, address=here.address, unheard=False))

    def _tell_repeated(self, saga: Saga, intent: Intent) -> None:
        self._tell(
            CallRepeated(
                saga_id=saga.id,
                step=intent.step,
                direction=intent.direction,
                method=intent.method,
                attempt=intent.attempt,
            )
        )

    def _watch_lease(self, key: tuple[str, str], here: _Present) -> None:
        delay_s = max(0.0, (here.lease_end_time - self._clock.now()) / 1e6)
        asyncio.get_running_loop().call_later(delay_s, self._look_at_lease, key)

    def _look_at_lease(self, key: tuple[str, str]) -> None:
        """Tell of an instance whose lease has ended; one that was renewed meanwhile is looked at again."""
        here = self._present.get(key)
        if here is None:
            return
        if here.lease_end_time > self._clock.now():
            self._watch_lease(key, here)
            return
        del self._present[key]
        self._tell(ParticipantWent(participant=here.participant, address=here.address, unheard=True))
