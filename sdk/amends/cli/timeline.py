"""What a saga's ledger rows tell of time: a lane for each attempt, each wait and each dead letter.

A lane has spans of time and nothing of how they are drawn. What goes on still has no end, and reaches to the end of the
timeline.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from google.protobuf.timestamp_pb2 import Timestamp

from amends.cli.formats import micros
from amends.cli.lanes import Lane, lanes_of
from amends.v1.saga_pb2 import Saga


@dataclass(frozen=True, slots=True)
class Change:
    """From this instant on this incarnation of the coordinator made the calls."""

    begin: int
    node: str


@dataclass(frozen=True, slots=True)
class Timeline:
    """A saga's lanes in the order in which its rows were announced, and from when to when they reach."""

    lanes: tuple[Lane, ...]
    changes: tuple[Change, ...]
    begin: int
    end: int

    def instants(self) -> set[int]:
        """Every instant at which something happens, in microseconds since 1970."""
        spans = [span for lane in self.lanes for span in lane.spans]
        return {self.begin, self.end, *(span.begin for span in spans), *(span.end for span in spans)}


def timeline(saga: Saga, now: int) -> Timeline:
    """What is known of the saga's times.

    Arguments:
        saga: a saga with its rows, not one of a list.
        now: until when what goes on is drawn, in microseconds since 1970. Where the coordinator's clock is ahead, it is
            drawn until the newest time in the saga.
    """
    known = [micros(time) for time in _times(saga)]
    end = max([*known, now] if _goes_on(saga) or not known else known)
    begin = min([*known, end])
    return Timeline(tuple(lanes_of(saga, end)), tuple(_changes(saga)), begin, end)


def _goes_on(saga: Saga) -> bool:
    """Whether there is something without an end."""
    return (
        not saga.HasField("end_time")
        or any(not letter.HasField("close_time") for letter in saga.dead_letters)
        or any(
            intent.HasField("next_attempt_time") or any(not attempt.HasField("end_time") for attempt in intent.attempts)
            for intent in saga.intents
        )
    )


def _times(saga: Saga) -> Iterator[Timestamp]:
    """Every time at which something happened; what is only planned is none."""
    if saga.HasField("create_time"):
        yield saga.create_time
    if saga.HasField("end_time"):
        yield saga.end_time
    for intent in saga.intents:
        for attempt in intent.attempts:
            yield attempt.start_time
            if attempt.HasField("end_time"):
                yield attempt.end_time
    for letter in saga.dead_letters:
        yield letter.open_time
        if letter.HasField("close_time"):
            yield letter.close_time


def _changes(saga: Saga) -> Iterator[Change]:
    """Which incarnations made the saga's calls, one after the other."""
    attempts = [attempt for intent in saga.intents for attempt in intent.attempts if attempt.node]
    node = ""
    for attempt in sorted(attempts, key=lambda each: micros(each.start_time)):
        if attempt.node != node:
            node = attempt.node
            yield Change(micros(attempt.start_time), node)
