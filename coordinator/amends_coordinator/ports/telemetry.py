"""The port to telemetry: what happened, told once. No method may block, raise, or depend on a backend being there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from amends_coordinator.core.answer import Answer
    from amends_coordinator.core.ids import Instant, StepName
    from amends_coordinator.core.saga import Attempt, DeadLetter, Intent, Saga
    from amends_coordinator.core.states import Direction
    from amends_coordinator.ports.ledger import InstanceRow


class Telemetry(Protocol):
    """Hears what the engine does. Saga ids and error texts are for logs, never for metric labels."""

    def saga_started(self, saga: Saga) -> None:
        """A saga is durable."""
        ...

    def saga_moved(self, saga: Saga) -> None:
        """A saga's state changed; it may have ended."""
        ...

    def intent_moved(self, saga: Saga, intent: Intent) -> None:
        """An intent was announced or its state changed."""
        ...

    def attempt_ended(self, saga: Saga, intent: Intent, attempt: Attempt, ended_time: Instant) -> None:
        """An attempt has ended, with an answer or with none, and that is durable. `intent` and `attempt` are as the
        ledger has them now. Told once for each attempt whose end this incarnation has seen.
        """
        ...

    def dead_letter_opened(self, saga: Saga, letter: DeadLetter) -> None:
        """A person is needed."""
        ...

    def call_not_sent(self, saga: Saga, step: StepName, direction: Direction, answer: Answer) -> None:
        """A call could not be sent, for example because no participant serves the method just now; it is tried again.
        Told for each attempt: an adapter that writes it down has to see that an outage doesn't flood it.
        """
        ...

    def late_answer(self, saga: Saga) -> None:
        """An answer came for a call that was closed already; it was dropped."""
        ...

    def driver_failed(self, saga_id: str, error: BaseException) -> None:
        """Driving a saga raised; it will be picked up again."""
        ...

    def request_refused(self, method: str, reason: str) -> None:
        """A request to the API ended with an error. `method`: "package.Service/Method", one that is served; `reason`:
        an `ErrorReason` in lower case.
        """
        ...

    def saga_unreadable(self, saga_id: str, error: BaseException) -> None:
        """A saga's rows make no sense; it is left alone until a person has mended them."""
        ...

    def ledger_unavailable(self, error: BaseException) -> None:
        """The sweeper could not reach the ledger; it goes on trying. Told for each pass that fails."""
        ...

    def sagas_purged(self, count: int) -> None:
        """Retention has emptied so many ended sagas since it told so last."""
        ...

    def retention_failed(self, error: BaseException) -> None:
        """Retention met what it can't make sense of; it goes on trying."""
        ...

    def participant_announced(self, instance: InstanceRow, services: Sequence[str]) -> None:
        """An instance of a participant serves these services. Told for each renewal, too, and for those that the ledger
        knew at the start: an adapter that cares has to see whether it is new.
        """
        ...

    def participant_unreadable(self, participant: str, error: BaseException) -> None:
        """What the ledger has of a participant makes no sense; it is unknown until it is announced or added again."""
        ...

    def participant_left(self, participant: str, instance_id: str) -> None:
        """An instance took itself out. One that dies is not told of: its lease ends, unless it is renewed."""
        ...
