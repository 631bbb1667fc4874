"""What the ledger of `make bench-list` holds, row by row: a million sagas over 30 days, unevenly, as life is.

Everything follows from a saga's number, so every ledger of one size is the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from amends_coordinator.core.ids import Instant
from amends_coordinator.core.states import SagaState
from amends_coordinator.ledger.instants import instant_to_text
from amends_coordinator.ledger.schema import FORMAT

DAYS = 30
DAY_US = 86_400_000_000
TENANTS = 200

NAMES = ("order", "payment", "transfer", "legacy", "rare", *(f"small-{number}" for number in range(8)))
"""The definitions: most sagas are orders; legacy ones ran for a day, twenty days ago; next to none is rare."""

VERSIONS = 4
"""Each definition has as many, one after the other."""

BANKS = ("bank-a", "bank-b")

SAGA_COLUMNS = (
    "id", "definition_name", "definition_version", "state", "version", "written_by", "due_time",
    "point_of_no_return_passed", "abort_requested", "unproven", "attention_required", "compensations_owed", "input",
    "failure_reason", "failure_code", "failure_message", "created_time", "updated_time", "progress_time", "ended_time",
    "deadline_time", "traceparent", "tracestate", "start_token", "input_hash", "input_hash_recipe", "format",
)  # fmt: skip
LABEL_COLUMNS = ("saga_id", "key", "value", "created_time")
PARTICIPANT_COLUMNS = ("saga_id", "participant", "created_time")
LETTER_COLUMNS = ("id", "saga_id", "position", "reason", "last_error", "opened_time")

Row = tuple[object, ...]


class Rows(NamedTuple):
    """The rows of one saga."""

    saga: Row
    labels: Sequence[Row]
    participants: Sequence[Row]
    letters: Sequence[Row]


def sagas(count: int, versions: dict[str, Sequence[str]], end: Instant) -> Iterator[Rows]:
    """The sagas of a ledger, oldest first; a thousandth of them hasn't ended.

    Args:
        count: how many.
        versions: the versions of each definition, oldest first.
        end: when the newest one was started.
    """
    for number in range(count):
        yield _saga(number, count, versions, end)


def _saga(number: int, count: int, versions: dict[str, Sequence[str]], end: Instant) -> Rows:
    mixed = (number * 2_654_435_761) % 2**32
    age = (count - number) / count
    created = Instant(end - int(age * DAYS * DAY_US))
    state = _state(mixed, age)
    took_us = 1_000_000 + mixed % 4_000_000 if mixed % 100 else (mixed % 259_200) * 1_000_000
    updated = min(Instant(created + took_us), end)
    name = _definition(number, mixed, age)
    version = versions[name][min(VERSIONS - 1, int((1 - age) * VERSIONS))]
    attention = state is SagaState.COMPENSATION_FAILED or (not state.ended and mixed % 6 == 0) or mixed % 20_000 == 7
    owed = 1 + mixed % 2 if state in (SagaState.COMPENSATING, SagaState.COMPENSATION_FAILED) else 0
    saga_id = f"{created // 1_000:012x}-7{mixed:08x}-{number:08x}"
    at, until = instant_to_text(created), instant_to_text(updated)
    rolled_back = state not in (SagaState.COMMITTED, SagaState.RUNNING)
    # What hasn't ended is due long after the benchmark, so that its coordinator leaves it alone.
    due = None if state.ended else instant_to_text(Instant(end + 3_650 * DAY_US))
    saga = (
        saga_id, name, version, state.value, 5, "node:1", due, False, False, mixed % 2_500 == 11, attention, owed,
        b"\x0a\x10sixteen letters." + saga_id.encode(), "NO_CARD" if rolled_back else "",
        "FAILED_PRECONDITION" if rolled_back else "", "", at, until, until, until if state.ended else None,
        instant_to_text(Instant(created + DAY_US)), "", "", f"{mixed:032x}", b"\x01" * 32, "sha256-v1", FORMAT,
    )  # fmt: skip
    labels = [("env", "production"), ("order", f"o-{number}"), ("tenant", f"t{mixed % TENANTS}")]
    if mixed % 25_000 == 3:
        labels.append(("campaign", "spring"))
    letter = (f"{saga_id}/-/-/1", saga_id, 0, "TIMED_OUT", "", until)
    return Rows(
        saga=saga,
        labels=[(saga_id, key, value, at) for key, value in labels],
        participants=[(saga_id, BANKS[mixed % 2], at)] if name == "transfer" else [],
        letters=[letter] if attention else [],
    )


def _state(mixed: int, age: float) -> SagaState:
    if age < 0.07 and mixed % 70 == 0:
        kind = mixed // 70 % 20
        return (
            SagaState.RUNNING if kind < 12 else SagaState.COMPENSATING if kind < 17 else SagaState.COMPENSATION_FAILED
        )
    return SagaState.COMPENSATED if mixed % 13 == 0 else SagaState.COMMITTED


def _definition(number: int, mixed: int, age: float) -> str:
    if number % 20_000 == 17:
        return "rare"
    if 20 / DAYS < age < 21 / DAYS and mixed % 5 == 0:
        return "legacy"
    share = mixed // 7 % 100
    return "order" if share < 45 else "payment" if share < 70 else "transfer" if share < 80 else f"small-{share % 8}"
