"""Logs: one line for an end, a dead letter and a fault, none for a transition at info, never a payload."""

from __future__ import annotations

import errno
import io
import json
import logging
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import structlog

from amends_coordinator.core.ids import Instant
from amends_coordinator.core.states import SagaState
from amends_coordinator.telemetry.logs import LogTelemetry, configure
from tests.unit.grpc_api.samples import NOW, compiled_errand, failed_saga

if TYPE_CHECKING:
    from collections.abc import Iterator

    from amends_coordinator.core.saga import Saga

SECRET = "4111-1111-1111-1111"


@pytest.fixture
def saga() -> Saga:
    """A saga whose payloads must not show."""
    stored = failed_saga(compiled_errand())
    secret = SECRET.encode()
    intents = tuple(replace(each, request=secret, response=secret) for each in stored.saga.intents)
    return replace(stored.saga, input=secret, output=secret, intents=intents, labels={"card": SECRET})


@pytest.fixture
def out() -> Iterator[io.StringIO]:
    """Where lines go; the process's logging is put back afterwards."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield io.StringIO()
    structlog.reset_defaults()
    root.handlers[:] = handlers
    root.setLevel(level)


def tell_everything(telemetry: LogTelemetry, saga: Saga) -> None:
    """Everything that the engine may tell."""
    telemetry.saga_started(saga)
    telemetry.intent_moved(saga, saga.intents[0])
    telemetry.saga_moved(replace(saga, state=SagaState.COMPENSATING))
    telemetry.dead_letter_opened(saga, saga.dead_letters[0])
    telemetry.saga_moved(saga)
    telemetry.saga_moved(replace(saga, state=SagaState.COMMITTED, ended_time=Instant(NOW + 2_000), failure=None))
    telemetry.late_answer(saga)
    try:
        raise ValueError(SECRET[:4])
    except ValueError as error:
        telemetry.driver_failed(saga.id, error)


def lines(out: io.StringIO) -> list[dict[str, object]]:
    """The lines that were written, as values."""
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_info_tells_ends_and_dead_letters_only(saga: Saga, out: io.StringIO) -> None:
    """One line per end, dead letter and fault; transitions are for debug."""
    configure(level="info", form="json", stream=out)
    tell_everything(LogTelemetry(), saga)
    told = [(line["event"], line["level"]) for line in lines(out)]
    assert told == [
        ("dead letter opened", "info"),
        ("saga can't go on without a person", "warning"),
        ("saga ended", "info"),
        ("driver failed", "error"),
    ]
    ended = lines(out)[2]
    assert (ended["saga_id"], ended["state"], ended["duration_ms"]) == ("s-1", "COMMITTED", 2)
    assert "ValueError" in str(lines(out)[3]["exception"])


@pytest.mark.parametrize("form", ["json", "console"])
def test_debug_tells_transitions_and_never_a_payload(saga: Saga, out: io.StringIO, form: str) -> None:
    """Payloads are never logged, whatever the level and the form, tracebacks included."""
    configure(level="debug", form=form, stream=out)
    tell_everything(LogTelemetry(), saga)
    assert "intent moved" in out.getvalue()
    assert SECRET not in out.getvalue()


def test_an_outage_is_told_once(out: io.StringIO) -> None:
    """An outage of the ledger is one line at its beginning and one at its end, not one for each pass."""
    configure(level="info", form="json", stream=out)
    telemetry = LogTelemetry()
    for _ in range(5):
        telemetry.ledger_unavailable(RuntimeError("disk full"))
    telemetry.ledger_available()
    telemetry.ledger_available()
    assert [line["event"] for line in lines(out)] == ["ledger unavailable", "ledger is back"]
    assert telemetry.failed_passes == 5


def test_libraries_speak_in_the_same_form(out: io.StringIO) -> None:
    """A library's warning is a line like ours; its info and debug lines stay out."""
    configure(level="debug", form="json", stream=out)
    logging.getLogger("somebody").info("quiet")
    logging.getLogger("somebody").warning("loud %s", "enough")
    assert [(line["event"], line["level"]) for line in lines(out)] == [("loud enough", "warning")]


class Full(io.StringIO):
    """A disk that is full: what is written fails at once, or when it is flushed."""

    def write(self, text: str) -> int:
        """See the class."""
        raise OSError(errno.ENOSPC, "No space left on device")

    def flush(self) -> None:
        """See the class."""
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_line_that_cannot_be_written_is_dropped(saga: Saga, out: io.StringIO) -> None:
    """L2: a full disk below the log, or a reader that has gone, stops no saga."""
    configure(level="debug", form="json", stream=Full())
    tell_everything(LogTelemetry(), saga)
    logging.getLogger("somebody").warning("loud")
    assert not out.getvalue()
