"""Structured logs: one line for each saga's end, dead letter and node event at info, one for each transition at debug.

A line costs as much as a call, so the level is asked before anything is put together. Payloads are never logged,
neither requests and responses nor inputs, outputs and labels.
"""

from __future__ import annotations

import logging
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, TextIO, cast

import structlog

from amends_coordinator.core.states import SagaState
from amends_coordinator.telemetry import names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from structlog.typing import FilteringBoundLogger, Processor

    from amends_coordinator.core.answer import Answer
    from amends_coordinator.core.ids import Instant, StepName
    from amends_coordinator.core.saga import Attempt, DeadLetter, Intent, Saga
    from amends_coordinator.core.states import Direction
    from amends_coordinator.ports.ledger import InstanceRow

QUIET_S = 60.0
"""For how long an outage of one method isn't told again, in seconds."""

METHODS_REMEMBERED = 1_000

TEXT_LIMIT = 2_048
"""The longest error text in a line, in characters."""


class LogTelemetry:
    """The telemetry port, written to the log."""

    def __init__(self, logger: FilteringBoundLogger | None = None) -> None:
        self._log: FilteringBoundLogger = structlog.get_logger("amends") if logger is None else logger
        self._debug = self._log.is_enabled_for(logging.DEBUG)
        self._info = self._log.is_enabled_for(logging.INFO)
        self._quiet_until_s: dict[str, float] = {}
        self._in_outage = False
        self.failed_passes = 0
        """How many passes of the sweeper could not reach the ledger so far."""

    def saga_started(self, saga: Saga) -> None:
        """A saga is durable."""
        if self._debug:
            self._log.debug(names.SAGA_STARTED, **_of_saga(saga))

    def saga_moved(self, saga: Saga) -> None:
        """A saga's state changed: an end is told at info, a halt at warning, all else at debug."""
        if saga.state.ended:
            if self._info:
                self._log.info(names.SAGA_ENDED, **_of_saga(saga), **_of_end(saga))
        elif saga.state is SagaState.COMPENSATION_FAILED:
            self._log.warning(names.SAGA_NEEDS_ATTENTION, **_of_saga(saga), **_of_end(saga))
        elif self._debug:
            self._log.debug(names.SAGA_MOVED, **_of_saga(saga))

    def intent_moved(self, saga: Saga, intent: Intent) -> None:
        """An intent was announced or its state changed."""
        if self._debug:
            self._log.debug(
                names.INTENT_MOVED,
                **{
                    names.SAGA_ID: saga.id,
                    names.STEP: intent.step,
                    names.DIRECTION: intent.direction.value,
                    names.STATE: intent.state.value,
                    names.ATTEMPT: intent.attempt,
                    names.STATUS_CODE: intent.last_code,
                },
            )

    def attempt_ended(self, saga: Saga, intent: Intent, attempt: Attempt, ended_time: Instant) -> None:
        """An attempt has ended: the intent's own line tells of it."""

    def dead_letter_opened(self, saga: Saga, letter: DeadLetter) -> None:
        """A person is needed."""
        if self._info:
            self._log.info(
                names.DEAD_LETTER_OPENED,
                **_of_saga(saga),
                **{
                    names.DEAD_LETTER_ID: letter.id,
                    names.STEP: letter.step or "",
                    names.DIRECTION: letter.direction.value if letter.direction else "",
                    names.REASON: letter.reason.value,
                    names.ERROR: letter.last_error[:TEXT_LIMIT],
                },
            )

    def call_not_sent(self, saga: Saga, step: StepName, direction: Direction, answer: Answer) -> None:
        """A call could not be sent; told at warning once a minute for each method, however many sagas wait for it."""
        method = saga.plan.by_name[step].call(direction).method
        now_s = time.monotonic()
        if now_s < self._quiet_until_s.get(method, now_s):
            return
        if len(self._quiet_until_s) >= METHODS_REMEMBERED:
            self._quiet_until_s.clear()
        self._quiet_until_s[method] = now_s + QUIET_S
        self._log.warning(
            names.CALL_NOT_SENT,
            **{
                names.METHOD: method,
                names.ERROR: answer.message[:TEXT_LIMIT],
                names.SAGA_ID: saga.id,
                names.STEP: step,
                names.DIRECTION: direction.value,
            },
        )

    def late_answer(self, saga: Saga) -> None:
        """An answer came for a call that was closed already; it was dropped."""
        if self._debug:
            self._log.debug(names.LATE_ANSWER, **_of_saga(saga))

    def driver_failed(self, saga_id: str, error: BaseException) -> None:
        """Driving a saga raised; it will be picked up again."""
        self._log.error(names.DRIVER_FAILED, exc_info=error, **{names.SAGA_ID: saga_id})

    def request_refused(self, method: str, reason: str) -> None:
        """A request ended with an error: its client has been told, so it is no more than a line at debug."""
        if self._debug:
            self._log.debug(names.REQUEST_REFUSED, **{names.METHOD: method, names.REASON: reason})

    def saga_unreadable(self, saga_id: str, error: BaseException) -> None:
        """A saga's rows make no sense."""
        self._log.error(names.SAGA_UNREADABLE, **{names.SAGA_ID: saga_id, names.ERROR: str(error)[:TEXT_LIMIT]})

    def participant_unreadable(self, participant: str, error: BaseException) -> None:
        """What the ledger has of a participant makes no sense."""
        said = {names.PARTICIPANT: participant, names.ERROR: str(error)[:TEXT_LIMIT]}
        self._log.error(names.PARTICIPANT_UNREADABLE, **said)

    def ledger_unavailable(self, error: BaseException) -> None:
        """A pass of the sweeper failed: an outage is told once at warning, its further passes at debug."""
        tell = self._log.debug if self._in_outage else self._log.warning
        self._in_outage = True
        tell(names.LEDGER_UNAVAILABLE, **{names.ERROR: str(error)[:TEXT_LIMIT]})
        self.failed_passes += 1

    def sagas_purged(self, count: int) -> None:
        """Retention has emptied ended sagas."""
        self._log.info(names.SAGAS_PURGED, **{names.COUNT: count})

    def retention_failed(self, error: BaseException) -> None:
        """Retention met what it can't make sense of."""
        self._log.error(names.RETENTION_FAILED, exc_info=error)

    def participant_announced(self, instance: InstanceRow, services: Sequence[str]) -> None:
        """An instance is announced, or its announcement renewed."""
        if self._debug:
            self._log.debug(
                names.PARTICIPANT_ANNOUNCED,
                **{
                    names.PARTICIPANT: instance.participant,
                    names.INSTANCE: instance.instance_id,
                    names.ADDRESS: instance.address,
                },
            )

    def participant_left(self, participant: str, instance_id: str) -> None:
        """An instance took itself out."""
        if self._debug:
            self._log.debug(names.PARTICIPANT_LEFT, **{names.PARTICIPANT: participant, names.INSTANCE: instance_id})

    def ledger_available(self) -> None:
        """A pass of the sweeper got through: told once after an outage."""
        if self._in_outage:
            self._in_outage = False
            self._log.info(names.LEDGER_BACK)


def _of_saga(saga: Saga) -> dict[str, object]:
    return {
        names.SAGA_ID: saga.id,
        names.DEFINITION: saga.plan.name,
        names.VERSION: saga.plan.version,
        names.STATE: saga.state.value,
    }


def _of_end(saga: Saga) -> dict[str, object]:
    """What an end's line says beyond the saga: how long it took, what caused it, what is left."""
    until = saga.updated_time if saga.ended_time is None else saga.ended_time
    fields: dict[str, object] = {names.DURATION_MS: (until - saga.created_time) // 1_000}
    if saga.failure is not None:
        fields[names.STEP] = saga.failure.step or ""
        fields[names.REASON] = saga.failure.reason[:TEXT_LIMIT]
    if saga.compensations_owed:
        fields[names.COMPENSATIONS_OWED] = saga.compensations_owed
    if saga.unproven:
        fields[names.UNPROVEN] = True
    return fields


def configure(*, level: str, form: str, stream: TextIO | None = None) -> None:
    """Set up the process's logs, ours and those of the libraries, once.

    Args:
        level: the least important lines to write: "debug", "info", "warning" or "error".
        form: "console" for people, "json" for machines.
        stream: where lines go; standard error unless said otherwise.
    """
    out = sys.stderr if stream is None else stream
    dropping = cast("TextIO", _Dropping(out))
    number = logging.getLevelNamesMapping()[level.upper()]
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    last = _renderer(form, colours=out.isatty())
    structlog.configure(
        processors=[*shared, *last],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.WriteLoggerFactory(file=dropping),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(dropping)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.ExtraAdder()],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
        )
    )
    # Libraries speak up at warning only: at debug they would log payloads and statements.
    logging.basicConfig(handlers=[handler], level=max(number, logging.WARNING), force=True)


class _Dropping:
    """Where lines go. One that can't be written, because the disk is full or nobody reads any more, is dropped: sagas
    don't fail for want of a log.
    """

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def write(self, text: str) -> int:
        """Write, or drop."""
        with suppress(OSError, ValueError):  # the latter: it is closed
            self._out.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush, or drop."""
        with suppress(OSError, ValueError):
            self._out.flush()


def _renderer(form: str, *, colours: bool) -> list[Processor]:
    if form == "json":
        # A traceback as plain text: the structured kind shows local variables, and those hold payloads.
        return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    return [structlog.dev.ConsoleRenderer(colors=colours, exception_formatter=structlog.dev.plain_traceback)]
