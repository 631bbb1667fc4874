"""From the core's values to rows of the write path. `values` goes the other way.

Each function answers the values of one row in the order of the column names above it. They run for every step of every
saga, so they are plain code.
"""

from __future__ import annotations

import json
import re
from json.encoder import encode_basestring_ascii as quoted
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from amends_coordinator.core.saga import NONE_LEFT_OUT, Attempt, DeadLetter, Intent, Saga
from amends_coordinator.core.states import IntentState, SagaState
from amends_coordinator.ledger.instants import instant_to_text
from amends_coordinator.ledger.schema import FORMAT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from amends_coordinator.core.ids import Instant, SagaId
    from amends_coordinator.ports.ledger import NewSaga, Write

    EncodeInstant = Callable[[Instant | None], object]
    Row = tuple[object, ...]
    Seen = tuple[str, int, str]  # a saga's id, and the version and the owner that a decision about it saw
    Unlike = tuple[int, str | None, str]  # the version, owner and written_by that it has instead

SAGA_CHANGES = (
    "state", "version", "written_by", "due_time", "point_of_no_return_passed", "abort_requested", "unproven",
    "attention_required", "compensations_owed", "output", "failure_step", "failure_reason", "failure_code",
    "failure_message", "failure_time", "updated_time", "progress_time", "ended_time", "deadline_time",
    "goes_first", "waits_for",
)  # fmt: skip
"""The columns of a saga that its decisions change."""

SAGA_MOVES = ("version", "written_by", "due_time", "waits_for", "updated_time", "progress_time")
"""Those of them that change with every decision; most change nothing else, see `only_moves`."""

SAGA_COLUMNS = (
    *SAGA_CHANGES, "id", "owner", "definition_name", "definition_version", "input", "created_time", "traceparent",
    "tracestate", "start_token", "input_hash", "input_hash_recipe", "format",
)  # fmt: skip

INTENT_KEY = ("saga_id", "step", "direction")
INTENT_CHANGES = (
    "participant", "state", "attempt", "attempts", "attempts_left_out", "next_attempt_time", "unsettled", "refusals",
    "spent_us", "unsent_us", "request", "response", "last_error", "last_code", "key_forced", "resolution",
    "resolved_by", "updated_time",
)  # fmt: skip
INTENT_COLUMNS = (*INTENT_KEY, "position", "method", *INTENT_CHANGES[:-1], "created_time", INTENT_CHANGES[-1])

ANNOUNCED_COLUMNS = (
    *INTENT_KEY, "position", "method", "participant", "attempts", "request", "created_time", "updated_time",
)  # fmt: skip
ANNOUNCED_CONSTANTS = {
    "state": "'PENDING'", "attempt": "1", "attempts_left_out": "'{}'", "next_attempt_time": "NULL",
    "unsettled": "false", "refusals": "0", "spent_us": "0", "unsent_us": "0", "response": "NULL", "last_error": "''",
    "last_code": "''", "key_forced": "false", "resolution": "NULL", "resolved_by": "NULL",
}  # fmt: skip
"""What a first attempt writes that is announced and has met nothing yet, and what its other columns hold, as SQL."""

SETTLED_CHANGES = ("state", "attempts", "spent_us", "response", "last_code", "updated_time")
"""The columns of an intent that an answer changes at its first attempt; most answers change nothing else."""

DEAD_LETTER_CHANGES = ("last_error", "closed_time")
DEAD_LETTER_COLUMNS = ("id", "saga_id", "position", "step", "direction", "reason", "opened_time", *DEAD_LETTER_CHANGES)

LABEL_COLUMNS = ("saga_id", "key", "value", "created_time")

PARTICIPANT_COLUMNS = ("saga_id", "participant", "created_time")

_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


def clean(text: str) -> str:
    """The text without what databases refuse: NUL and lone surrogates become U+FFFD."""
    if not text or (text.isascii() and "\0" not in text):
        return text
    return _UNSTORABLE.sub("\ufffd", text)


def saga_update(write: Write, written_by: str, instant: EncodeInstant) -> Row:
    """The values of `SAGA_CHANGES`, then the id."""
    return (*_saga_changes(write, write.seen_version + 1, written_by, instant), write.saga.id)


_what_may_rest = attrgetter(
    "state", "point_of_no_return_passed", "abort_requested", "unproven", "dead_letters", "compensations_owed", "output",
    "failure", "ended_time", "deadline_time",
)  # fmt: skip


def only_moves(before: Saga, after: Saga) -> bool:
    """Whether nothing but `SAGA_MOVES` differs in the rows of a saga before and after a decision."""
    rests: bool = _what_may_rest(before) == _what_may_rest(after)
    return rests


def saga_move(write: Write, written_by: str, instant: EncodeInstant) -> Row:
    """The values of `SAGA_MOVES`, then the id."""
    saga = write.saga
    return (
        write.seen_version + 1,
        written_by,
        instant(saga.due_time),
        clean(write.waits_for),
        instant(saga.updated_time),
        instant(saga.progress_time),
        saga.id,
    )


def saga_insert(new: NewSaga, written_by: str, instant: EncodeInstant) -> Row:
    """The values of `SAGA_COLUMNS`."""
    saga = new.saga
    return (
        *_saga_changes(new, 1, written_by, instant),
        saga.id,
        new.owner,
        saga.plan.name,
        saga.plan.version,
        saga.input,
        instant(saga.created_time),
        clean(saga.traceparent),
        clean(saga.tracestate),
        new.start_token,
        new.input_hash,
        new.input_hash_recipe,
        FORMAT,
    )


def _saga_changes(content: NewSaga | Write, version: int, written_by: str, instant: EncodeInstant) -> Row:
    saga = content.saga
    failure = saga.failure
    return (
        str(saga.state),
        version,
        written_by,
        instant(saga.due_time),
        saga.point_of_no_return_passed,
        saga.abort_requested,
        saga.unproven,
        saga.attention_required,
        saga.compensations_owed,
        saga.output,
        None if failure is None else failure.step,
        "" if failure is None else clean(failure.reason),
        "" if failure is None else clean(failure.status_code),
        "" if failure is None else clean(failure.message),
        None if failure is None else instant(failure.time),
        instant(saga.updated_time),
        instant(saga.progress_time),
        instant(saga.ended_time),
        instant(saga.deadline_time),
        saga.state is not SagaState.RUNNING,
        clean(content.waits_for),
    )


class IntentRows(NamedTuple):
    """Rows of intents, each in one of three forms."""

    whole: Sequence[Row]
    """The values of `INTENT_COLUMNS`."""
    announced: Sequence[Row] = ()
    """New ones, the values of `ANNOUNCED_COLUMNS`; the others are `ANNOUNCED_CONSTANTS`."""
    settled: Sequence[Row] = ()
    """Of stored ones that change in nothing else: the values of `SETTLED_CHANGES`, then of `INTENT_KEY`."""


def intents(
    saga: Saga, chosen: Sequence[Intent], instant: EncodeInstant, *, stored: Sequence[Intent] | None = None
) -> IntentRows:
    """The rows of the chosen intents of a saga.

    Args:
        saga, chosen, instant: the saga, those of its intents that are written, and how times are written.
        stored: the saga's intents as the ledger holds them; None: unknown, so all are written whole.

    Raises:
        KeyError: a chosen intent isn't one of the saga's.
    """
    if stored is None:
        return IntentRows([_intent(saga.id, _position(saga, intent), intent, instant) for intent in chosen])
    whole: list[Row] = []
    announced: list[Row] = []
    settled: list[Row] = []
    for intent in chosen:
        position = _position(saga, intent)
        before = stored[position] if position < len(stored) else None
        if before is None and _what_is_yet_to_come(intent) == _NOTHING_CAME_YET:
            announced.append(_announced(saga.id, position, intent, instant))
        elif before is not None and _what_an_answer_leaves(before) == _what_an_answer_leaves(intent):
            settled.append(_settled(saga.id, intent, instant))
        else:
            whole.append(_intent(saga.id, position, intent, instant))
    return IntentRows(whole, announced, settled)


_what_an_answer_leaves = attrgetter(
    "step", "direction", "participant", "attempt", "attempts_left_out", "next_attempt_time", "unsettled", "refusals",
    "unsent_us", "request", "last_error", "key_forced", "resolution", "resolved_by",
)  # fmt: skip
_what_is_yet_to_come = attrgetter(
    "state", "attempt", "attempts_left_out", "next_attempt_time", "unsettled", "refusals", "spent_us", "unsent_us",
    "response", "last_error", "last_code", "key_forced", "resolution", "resolved_by",
)  # fmt: skip
_NOTHING_CAME_YET = (
    IntentState.PENDING, 1, NONE_LEFT_OUT, None, False, 0, 0, 0, None, "", "", False, None, "",
)  # fmt: skip


def _position(saga: Saga, intent: Intent) -> int:
    for position, each in enumerate(saga.intents):
        if each is intent or (each.step == intent.step and each.direction is intent.direction):
            return position
    raise KeyError(f"{intent.step} {intent.direction} is not an intent of the saga")


def _announced(saga_id: SagaId, position: int, intent: Intent, instant: EncodeInstant) -> Row:
    return (
        saga_id,
        intent.step,
        str(intent.direction),
        position,
        intent.method,
        intent.participant,
        attempts_to_json(intent.attempts),
        intent.request,
        instant(intent.created_time),
        instant(intent.updated_time),
    )


def _settled(saga_id: SagaId, intent: Intent, instant: EncodeInstant) -> Row:
    return (
        str(intent.state),
        attempts_to_json(intent.attempts),
        intent.spent_us,
        intent.response,
        clean(intent.last_code),
        instant(intent.updated_time),
        saga_id,
        intent.step,
        str(intent.direction),
    )


def _intent(saga_id: SagaId, position: int, intent: Intent, instant: EncodeInstant) -> Row:
    return (
        saga_id,
        intent.step,
        str(intent.direction),
        position,
        intent.method,
        intent.participant,
        str(intent.state),
        intent.attempt,
        attempts_to_json(intent.attempts),
        _counts_to_json(intent.attempts_left_out),
        instant(intent.next_attempt_time),
        intent.unsettled,
        intent.refusals,
        intent.spent_us,
        intent.unsent_us,
        intent.request,
        intent.response,
        clean(intent.last_error),
        clean(intent.last_code),
        intent.key_forced,
        None if intent.resolution is None else str(intent.resolution),
        clean(intent.resolved_by) or None,
        instant(intent.created_time),
        instant(intent.updated_time),
    )


def dead_letters(saga: Saga, chosen: Sequence[DeadLetter], instant: EncodeInstant) -> list[Row]:
    """A row of `DEAD_LETTER_COLUMNS` for each of the chosen dead letters of a saga.

    Raises:
        KeyError: a chosen dead letter isn't one of the saga's.
    """
    if not chosen:
        return []
    positions = {letter.id: position for position, letter in enumerate(saga.dead_letters)}
    return [
        (
            letter.id,
            saga.id,
            positions[letter.id],
            letter.step,
            None if letter.direction is None else str(letter.direction),
            str(letter.reason),
            instant(letter.opened_time),
            clean(letter.last_error),
            instant(letter.closed_time),
        )
        for letter in chosen
    ]


def labels(saga: Saga, instant: EncodeInstant) -> list[Row]:
    """A row of `LABEL_COLUMNS` for each label."""
    if not saga.labels:
        return []
    created_time = instant(saga.created_time)
    return [(saga.id, clean(key), clean(value), created_time) for key, value in saga.labels.items()]


def participants(new: NewSaga, instant: EncodeInstant) -> list[Row]:
    """A row of `PARTICIPANT_COLUMNS` for each participant that the input chose."""
    if not new.participants:
        return []
    created_time = instant(new.saga.created_time)
    return [(new.saga.id, name, created_time) for name in dict.fromkeys(new.participants)]


def attempts_to_json(attempts: Sequence[Attempt]) -> str:
    """A JSON list with an object per attempt; written by hand because `json.dumps` takes four times as long."""
    if len(attempts) == 1:
        return f"[{_attempt(attempts[0])}]"
    return f"[{','.join(map(_attempt, attempts))}]"


def _attempt(attempt: Attempt) -> str:
    start = f'{{"number":{attempt.number},"node":{quoted(attempt.node)},"start":"{instant_to_text(attempt.start_time)}"'
    if attempt.end_time is None:
        return start + "}"
    end = f'{start},"end":"{instant_to_text(attempt.end_time)}","code":{quoted(clean(attempt.status_code))}'
    return end + "}" if attempt.outcome is None else f'{end},"outcome":"{attempt.outcome!s}"}}'


def _counts_to_json(counts: Mapping[str, int]) -> str:
    return json.dumps(dict(counts), separators=(",", ":")) if counts else "{}"
