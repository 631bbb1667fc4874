"""How a rehearsal can end otherwise than with a saga's end, and when a saga waits for a person."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from amends.errors import AmendsError
from amends.v1 import saga_pb2

if TYPE_CHECKING:
    from amends_coordinator.bootstrap import MemoryStore


class CoordinatorFailedError(AmendsError):
    """The coordinator failed, or a fault raised what it was not meant to; the text has the timeline, which says which.
    Mend the fault; if it is the coordinator's own failure, tell its makers.
    """


class StandsStillError(AmendsError):
    """The saga hasn't ended, and nothing goes on without a person. `saga` is how it stands, with its dead letters:
    retry or resolve them.
    """

    def __init__(self, saga: saga_pb2.Saga, timeline: str) -> None:
        open_ones = ", ".join(
            f"{letter.step} {saga_pb2.DeadLetter.Reason.Name(letter.reason).removeprefix('REASON_')}"
            for letter in saga.dead_letters
            if not letter.HasField("close_time")
        )
        super().__init__(f"saga {saga.saga_id!r} waits for a person: {open_ones}\n{timeline}")
        self.saga = saga


def stands_still(store: MemoryStore, saga_id: str) -> bool:
    """Whether nothing about a saga will change without a person; also of one that isn't there."""
    record = store.records.get(cast("Any", saga_id))  # its own type of id is the coordinator's business
    if record is None:
        return True
    saga = record.stored.saga
    if saga.state.value == "COMPENSATION_FAILED":
        return True
    if saga.state.ended or not saga.attention_required:
        return saga.state.ended and saga.due_time is None
    # What is parked behind the point of no return has a timeout ahead of it, which only tells a person once more.
    goes_on = any(intent.in_flight or intent.waiting for intent in saga.intents)
    told_only = saga.point_of_no_return_passed and saga.due_time == saga.deadline_time
    return not goes_on and (saga.due_time is None or told_only)
