"""Says in lines what has changed about a saga between two looks at it."""

from __future__ import annotations

from collections.abc import Iterator

from google.protobuf.timestamp_pb2 import Timestamp
from rich.text import Text

from amends.cli.formats import LONGEST_NAME, cut, enum_word, instant
from amends.cli.show import BAD, BUSY, GOOD, QUIET, age, saga_state, state_text
from amends.v1.saga_pb2 import DeadLetter, Direction, Intent, Saga


def news(before: Saga | None, saga: Saga) -> Iterator[Text]:
    """A line for each call, dead letter and state that is new since `before` (None: everything is)."""
    if before is None:
        yield _line(saga.create_time, Text.assemble((cut(saga.saga_id), "bold"), f"  {cut(saga.definition_name)}"))
    known = Saga() if before is None else before
    intents = {(intent.step, intent.direction): intent for intent in known.intents}
    for intent in saga.intents:
        earlier = intents.get((intent.step, intent.direction), Intent())
        if (earlier.state, earlier.attempt_count) != (intent.state, intent.attempt_count):
            yield _call(intent)
    letters = {letter.dead_letter_id: letter.HasField("close_time") for letter in known.dead_letters}
    for letter in saga.dead_letters:
        if letters.get(letter.dead_letter_id) != letter.HasField("close_time"):
            yield _dead_letter(letter)
    if known.state != saga.state:
        yield _state(saga)


def _line(time: Timestamp, text: Text) -> Text:
    return Text.assemble((instant(time), QUIET), "  ", text)


def _call(intent: Intent) -> Text:
    direction = enum_word(Direction.DESCRIPTOR, intent.direction).lower()
    line = Text.assemble((cut(intent.step, LONGEST_NAME), "bold"), f"  {direction}  ")
    line.append_text(state_text(enum_word(Intent.State.DESCRIPTOR, intent.state)))
    line.append(f"  #{intent.attempt_count}")
    if intent.state != Intent.STATE_SUCCEEDED and intent.last_error:
        line.append(f"  {cut(intent.last_error)}")
    if intent.HasField("next_attempt_time"):
        line.append(f"  next attempt at {instant(intent.next_attempt_time)}", BUSY)
    return _line(intent.update_time, line)


def _dead_letter(letter: DeadLetter) -> Text:
    closed = letter.HasField("close_time")
    line = Text.assemble("dead letter ", ("closed", GOOD) if closed else ("open", BAD))
    line.append(f"  {enum_word(DeadLetter.Reason.DESCRIPTOR, letter.reason)}  {cut(letter.dead_letter_id, 256)}")
    return _line(letter.close_time if closed else letter.open_time, line)


def _state(saga: Saga) -> Text:
    line = state_text(saga_state(saga))
    if saga.HasField("end_time"):
        line.append(f"  {age(saga)}")
    elif saga.HasField("failure"):
        line.append(f"  {cut(saga.failure.step, LONGEST_NAME)} {cut(saga.failure.reason, LONGEST_NAME)}".rstrip())
    return _line(saga.update_time, line)
