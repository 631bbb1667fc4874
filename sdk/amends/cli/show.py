"""Draws a saga for people: a tree with a branch per ledger row and a line per attempt.

Everything a participant or initiator wrote is printed as text, never as markup: control characters are escaped and long
values are cut, so no value can colour, move or flood the terminal. Without colours nothing is lost: every colour only
repeats a word.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import IO

from google.protobuf.timestamp_pb2 import Timestamp
from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from amends.cli.formats import LONGEST_NAME, cut, duration, enum_word, instant, micros
from amends.v1.saga_pb2 import Attempt, DeadLetter, Direction, Failure, Intent, Outcome, Resolution, Saga

# Lines that go to a file or a pipe are not wrapped: whoever searches in them wants one fact per line.
PIPE_WIDTH = 1_000

GOOD, BUSY, BACKWARD, BAD, QUIET = "green", "cyan", "yellow", "bold red", "dim"
STATE_STYLES = {
    "RUNNING": BUSY,
    "COMMITTED": GOOD,
    "COMPENSATING": BACKWARD,
    "COMPENSATED": BACKWARD,
    "COMPENSATION_FAILED": BAD,
    "PENDING": BUSY,
    "SUCCEEDED": GOOD,
    "REJECTED": BAD,
    "UNKNOWN": BACKWARD,
    "NOTHING_TO_UNDO": GOOD,
    "PARKED": BAD,
    "RESOLVED": GOOD,
    "DROPPED": QUIET,
}
OUTCOME_STYLES = {
    "succeeded": GOOD,
    "rejected": BAD,
    "rejected sealed": BAD,
    "unknown": BACKWARD,
    "not sent": QUIET,
    "wiring fault": BAD,
}


def console(file: IO[str] | None = None) -> Console:
    """A console for `file` (default: standard output) that wraps lines on a terminal only and obeys NO_COLOR."""
    target = sys.stdout if file is None else file
    return Console(file=target, highlight=False, width=None if target.isatty() else PIPE_WIDTH)


def columns(titles: Sequence[str], rows: Sequence[Sequence[Text]]) -> Iterator[Text]:
    """A line for each row under its titles; the terminal wraps what is too long, so that no id is ever cut."""
    table = [[Text(title, QUIET) for title in titles], *([*row] for row in rows)]
    widths = [max(row[column].cell_len for row in table) for column in range(len(titles))]
    for row in table:
        line = Text()
        for cell, width in zip(row, widths, strict=True):
            cell.pad_right(width - cell.cell_len + 2)
            line.append_text(cell)
        line.rstrip()
        yield line


def saga_tree(saga: Saga) -> Tree:
    """The saga with all that its ledger rows tell, in the order in which they were announced."""
    tree = Tree(_headline(saga), guide_style=QUIET)
    for line in _notes(saga):
        tree.add(line)
    columns = _IntentColumns(saga)
    for intent in saga.intents:
        branch = tree.add(columns.line(intent))
        for line in _intent_lines(saga, intent):
            branch.add(line)
    for letter in saga.dead_letters:
        tree.add(_dead_letter_line(saga, letter))
    return tree


def state_text(name: str) -> Text:
    """The name of a saga's or an intent's state in its colour."""
    return Text(name, STATE_STYLES.get(name, ""))


def saga_state(saga: Saga) -> str:
    """The name of a saga's state without its prefix, for example "COMMITTED"."""
    return enum_word(Saga.State.DESCRIPTOR, saga.state)


def age(saga: Saga) -> str:
    """How long the saga took, or since when it has been going on."""
    if not saga.HasField("create_time"):
        return ""
    if saga.HasField("end_time"):
        return f"in {duration(micros(saga.end_time) - micros(saga.create_time))}"
    return f"since {instant(saga.create_time)}"


def _headline(saga: Saga) -> Text:
    line = Text()
    line.append(cut(saga.saga_id, 128), "bold")
    line.append(f"  {cut(saga.definition_name, LONGEST_NAME) or '(client-driven)'}  ")
    line.append_text(state_text(saga_state(saga)))
    if passed := age(saga):
        line.append(f"  {passed}")
    if saga.definition_version:
        line.append(f"  version {cut(saga.definition_version, 16)}", QUIET)
    return line


def _notes(saga: Saga) -> Iterator[Text]:
    """What the saga's own row says beside its state."""
    if saga.HasField("failure"):
        yield _failure_line(saga.failure)
    if saga.attention_required:
        open_count = sum(not letter.HasField("close_time") for letter in saga.dead_letters)
        counted = f": {open_count} open dead letter{'s' if open_count != 1 else ''}" if open_count else ""
        yield Text(f"attention required{counted}", BAD)
    if saga.compensations_owed:
        yield Text(f"compensations owed: {saga.compensations_owed}", BACKWARD)
    if saga.unproven:
        yield Text("unproven: the end rests on an assumption that no participant has proven", BACKWARD)
    if saga.abort_requested:
        yield Text("abort requested")
    if saga.point_of_no_return_passed and not saga.HasField("end_time"):
        yield Text("past the point of no return")
    if saga.purged:
        yield Text("purged: payloads and ledger rows were removed by retention", QUIET)
    if saga.labels:
        pairs = ", ".join(f"{key}={value}" for key, value in sorted(saga.labels.items()))
        yield Text(f"labels: {cut(pairs)}", QUIET)


def _failure_line(failure: Failure) -> Text:
    line = Text("failure: ")
    line.append(f"step {cut(failure.step, LONGEST_NAME)}" if failure.step else "the saga as a whole")
    line.append(f"  {cut(failure.reason, LONGEST_NAME)}", BAD)
    if failure.status_code and failure.status_code != failure.reason:
        line.append(f"  {cut(failure.status_code, LONGEST_NAME)}")
    if failure.message:
        line.append(f"  {cut(failure.message)}")
    return line


class _IntentColumns:
    """Widths that make the rows of one saga line up."""

    def __init__(self, saga: Saga) -> None:
        self._step = max((len(cut(intent.step, LONGEST_NAME)) for intent in saga.intents), default=0)
        self._direction = max((len(_direction(intent.direction)) for intent in saga.intents), default=0)
        self._state = max((len(_intent_state(intent)) for intent in saga.intents), default=0)

    def line(self, intent: Intent) -> Text:
        state = _intent_state(intent)
        line = Text(cut(intent.step, LONGEST_NAME).ljust(self._step), "bold")
        line = Text.assemble(line, f"  {_direction(intent.direction).ljust(self._direction)}  ")
        line.append_text(state_text(state)).append(" " * (self._state - len(state) + 2))
        return line.append(cut(intent.method), QUIET)


def _intent_lines(saga: Saga, intent: Intent) -> Iterator[Text]:
    rows = [_attempt_cells(saga, attempt) for attempt in intent.attempts]
    widths = [max(len(row[column]) for row in rows) for column in range(5)] if rows else []
    last_number = 0
    for attempt, row in zip(intent.attempts, rows, strict=True):
        if attempt.number > last_number + 1 and intent.attempts_left_out:
            yield _left_out_line(intent)
        last_number = attempt.number
        yield _attempt_line(attempt, row, widths)
    if intent.attempts_left_out and not rows:
        yield _left_out_line(intent)
    if intent.resolution:
        found = enum_word(Resolution.DESCRIPTOR, intent.resolution).lower().replace("_", " ")
        yield Text(f"resolved by {cut(intent.resolved_by, LONGEST_NAME)}: {found}", GOOD)
    if intent.state != Intent.STATE_SUCCEEDED and intent.last_error:
        yield Text(f"said: {cut(intent.last_error)}")
    if intent.HasField("next_attempt_time"):
        yield Text(f"next attempt at {instant(intent.next_attempt_time)}", BUSY)


def _attempt_cells(saga: Saga, attempt: Attempt) -> list[str]:
    started = _offset(saga, attempt.start_time) if attempt.HasField("start_time") else ""
    took = "-"
    if attempt.HasField("start_time") and attempt.HasField("end_time"):
        took = duration(micros(attempt.end_time) - micros(attempt.start_time))
    outcome = enum_word(Outcome.DESCRIPTOR, attempt.outcome).lower().replace("_", " ")
    if not attempt.outcome:
        outcome = "not known yet"
    return [f"#{attempt.number}", started, took, cut(attempt.status_code, LONGEST_NAME) or "-", outcome]


def _attempt_line(attempt: Attempt, row: list[str], widths: list[int]) -> Text:
    number, started, took, code, outcome = row
    line = Text(f"{number.ljust(widths[0])}  {started.rjust(widths[1])}  {took.rjust(widths[2])}  ")
    line.append(f"{code.ljust(widths[3])}  ")
    line.append(outcome, OUTCOME_STYLES.get(outcome, BUSY))
    if attempt.node:
        line.append(" " * (widths[4] - len(outcome)) + f"  node {cut(attempt.node, 36)}", QUIET)
    return line


def _left_out_line(intent: Intent) -> Text:
    counts = sorted(intent.attempts_left_out.items())
    total = sum(count for _, count in counts)
    codes = ", ".join(f"{count} {code or 'without an answer'}" for code, count in counts)
    return Text(f"... {total} more: {cut(codes)}", QUIET)


def _dead_letter_line(saga: Saga, letter: DeadLetter) -> Text:
    closed = letter.HasField("close_time")
    line = Text("dead letter ")
    line.append("closed" if closed else "open", GOOD if closed else BAD)
    line.append(f"  {enum_word(DeadLetter.Reason.DESCRIPTOR, letter.reason)}")
    where = f"{letter.step} {_direction(letter.direction)}" if letter.step else "the saga as a whole"
    line.append(f"  {cut(where, 2 * LONGEST_NAME)}")
    if letter.HasField("open_time"):
        line.append(f"  {_offset(saga, letter.open_time)}")
    if letter.last_error:
        line.append(f"  {cut(letter.last_error)}")
    return line.append(f"  {cut(letter.dead_letter_id, 256)}", QUIET)


def _offset(saga: Saga, time: Timestamp) -> str:
    """When something happened, counted from the saga's start."""
    return f"+{duration(micros(time) - micros(saga.create_time))}"


def _direction(number: Direction.ValueType) -> str:
    return enum_word(Direction.DESCRIPTOR, number).lower()


def _intent_state(intent: Intent) -> str:
    return enum_word(Intent.State.DESCRIPTOR, intent.state)
