"""The telemetry port where metrics or traces are exported: tells the log first, then counts, then emits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from amends_coordinator.telemetry import names

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from amends_coordinator.core.answer import Answer
    from amends_coordinator.core.ids import Instant, StepName
    from amends_coordinator.core.saga import Attempt, DeadLetter, Intent, Saga
    from amends_coordinator.core.states import Direction
    from amends_coordinator.ports.ledger import InstanceRow
    from amends_coordinator.ports.telemetry import Telemetry
    from amends_coordinator.telemetry.metrics import Metrics
    from amends_coordinator.telemetry.tracing import SagaTraces

_log: Any = structlog.get_logger("amends")  # structlog's loggers are proxies that it declares as Any itself


class ExportingTelemetry:
    """Nothing that counting or emitting raises reaches the engine: sagas don't fail for want of sight.

    Args:
        told: hears everything first.
        metrics: counts.
        traces: emits; None: no spans are exported.
    """

    def __init__(self, told: Telemetry, *, metrics: Metrics, traces: SagaTraces | None) -> None:
        self._told, self._metrics, self._traces = told, metrics, traces
        self._has_complained = False

    def saga_started(self, saga: Saga) -> None:
        """See the port."""
        self._told.saga_started(saga)
        self._safely(self._metrics.saga_started, saga)

    def saga_moved(self, saga: Saga) -> None:
        """See the port."""
        self._told.saga_moved(saga)
        self._safely(self._metrics.saga_moved, saga)
        if self._traces is not None:
            self._safely(self._traces.saga_moved, saga)

    def intent_moved(self, saga: Saga, intent: Intent) -> None:
        """See the port."""
        self._told.intent_moved(saga, intent)
        if self._traces is not None:
            self._safely(self._traces.intent_moved, saga, intent)

    def attempt_ended(self, saga: Saga, intent: Intent, attempt: Attempt, ended_time: Instant) -> None:
        """See the port."""
        self._told.attempt_ended(saga, intent, attempt, ended_time)
        self._safely(self._metrics.attempt_ended, intent, attempt, ended_time)

    def dead_letter_opened(self, saga: Saga, letter: DeadLetter) -> None:
        """See the port."""
        self._told.dead_letter_opened(saga, letter)
        self._safely(self._metrics.dead_letter_opened, letter)

    def call_not_sent(self, saga: Saga, step: StepName, direction: Direction, answer: Answer) -> None:
        """See the port."""
        self._told.call_not_sent(saga, step, direction, answer)

    def late_answer(self, saga: Saga) -> None:
        """See the port."""
        self._told.late_answer(saga)
        self._safely(self._metrics.late_answer)

    def driver_failed(self, saga_id: str, error: BaseException) -> None:
        """See the port."""
        self._told.driver_failed(saga_id, error)
        self._safely(self._metrics.driver_failed)

    def request_refused(self, method: str, reason: str) -> None:
        """See the port."""
        self._told.request_refused(method, reason)
        self._safely(self._metrics.request_refused, method, reason)

    def saga_unreadable(self, saga_id: str, error: BaseException) -> None:
        """See the port."""
        self._told.saga_unreadable(saga_id, error)

    def ledger_unavailable(self, error: BaseException) -> None:
        """See the port."""
        self._told.ledger_unavailable(error)
        self._safely(self._metrics.ledger_unavailable)

    def sagas_purged(self, count: int) -> None:
        """See the port."""
        self._told.sagas_purged(count)

    def retention_failed(self, error: BaseException) -> None:
        """See the port."""
        self._told.retention_failed(error)

    def participant_announced(self, instance: InstanceRow, services: Sequence[str]) -> None:
        """See the port."""
        self._told.participant_announced(instance, services)

    def participant_unreadable(self, participant: str, error: BaseException) -> None:
        """See the port."""
        self._told.participant_unreadable(participant, error)

    def participant_left(self, participant: str, instance_id: str) -> None:
        """See the port."""
        self._told.participant_left(participant, instance_id)

    def _safely(self, tell: Callable[..., None], *arguments: object) -> None:
        try:
            tell(*arguments)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is no reason to disturb a saga
            if not self._has_complained:  # once: it would be told for every call otherwise
                self._has_complained = True
                _log.error(names.EXPORT_FAILED, exc_info=error)
