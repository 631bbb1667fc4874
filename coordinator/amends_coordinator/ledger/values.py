"""From rows to the core's values. `rows` goes the other way."""

from __future__ import annotations

import json
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

from amends_coordinator.core.definition import StoredDefinition
from amends_coordinator.core.ids import DeadLetterId, DefinitionVersion, NodeId, SagaId, StepName
from amends_coordinator.core.saga import Attempt, DeadLetter, Failure, Intent, Saga
from amends_coordinator.core.states import DeadLetterReason, Direction, IntentState, Outcome, Resolution, SagaState
from amends_coordinator.ledger.instants import text_to_instant
from amends_coordinator.ports.ledger import InputHash, InstanceRow, ParticipantRow, StoredSaga

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import RowMapping

    from amends_coordinator.core.plan import Plan


def stored_saga(
    row: RowMapping,
    *,
    plan: Plan,
    labels: Mapping[str, str],
    intents: Sequence[RowMapping],
    dead_letters: Sequence[RowMapping],
) -> StoredSaga:
    """A saga from its row and the rows that hang on it.

    Raises:
        ValueError, KeyError, TypeError: the rows don't say what this release understands.
    """
    if strange := {intent["step"] for intent in intents} - plan.by_name.keys():
        raise ValueError(f"the definition has no step {', '.join(map(repr, strange))}")
    saga = Saga(
        id=SagaId(row["id"]),
        plan=plan,
        state=SagaState(row["state"]),
        input=row["input"],
        output=row["output"],
        labels=MappingProxyType(dict(labels)),
        failure=_failure(row),
        point_of_no_return_passed=row["point_of_no_return_passed"],
        abort_requested=row["abort_requested"],
        unproven=row["unproven"],
        intents=tuple(map(_intent, intents)),
        dead_letters=tuple(map(dead_letter, dead_letters)),
        compensations_owed=row["compensations_owed"],
        due_time=row["due_time"],
        created_time=row["created_time"],
        updated_time=row["updated_time"],
        progress_time=row["progress_time"],
        ended_time=row["ended_time"],
        deadline_time=row["deadline_time"],
        traceparent=row["traceparent"],
        tracestate=row["tracestate"],
    )
    owner = row["owner"]
    return StoredSaga(
        saga=saga,
        version=row["version"],
        owner=None if owner is None else NodeId(owner),
        purged=InputHash(value=row["input_hash"], recipe=row["input_hash_recipe"]) if row["purged"] else None,
        waits_for=row["waits_for"],
    )


def _failure(row: RowMapping) -> Failure | None:
    if row["failure_time"] is None:
        return None
    step = row["failure_step"]
    return Failure(
        step=None if step is None else StepName(step),
        reason=row["failure_reason"],
        status_code=row["failure_code"],
        message=row["failure_message"],
        time=row["failure_time"],
    )


def _intent(row: RowMapping) -> Intent:
    return Intent(
        step=StepName(row["step"]),
        direction=Direction(row["direction"]),
        method=row["method"],
        participant=row["participant"],
        state=IntentState(row["state"]),
        attempt=row["attempt"],
        attempts=attempts_from_json(row["attempts"]),
        attempts_left_out=MappingProxyType(json.loads(row["attempts_left_out"])),
        next_attempt_time=row["next_attempt_time"],
        unsettled=row["unsettled"],
        refusals=row["refusals"],
        spent_us=row["spent_us"],
        unsent_us=row["unsent_us"],
        request=row["request"],
        response=row["response"],
        last_error=row["last_error"],
        last_code=row["last_code"],
        key_forced=row["key_forced"],
        resolution=None if row["resolution"] is None else Resolution(row["resolution"]),
        resolved_by=row["resolved_by"] or "",
        created_time=row["created_time"],
        updated_time=row["updated_time"],
    )


def attempts_from_json(text: str) -> tuple[Attempt, ...]:
    """The reverse of `rows.attempts_to_json`."""
    return tuple(map(_attempt, json.loads(text)))


def _attempt(found: dict[str, Any]) -> Attempt:  # Any: what JSON holds
    end, outcome = found.get("end"), found.get("outcome")
    return Attempt(
        number=found["number"],
        node=NodeId(found["node"]),
        start_time=text_to_instant(found["start"]),
        end_time=None if end is None else text_to_instant(end),
        status_code=found.get("code", ""),
        outcome=None if outcome is None else Outcome(outcome),
    )


def dead_letter(row: RowMapping) -> DeadLetter:
    """A dead letter from its row."""
    step, direction = row["step"], row["direction"]
    return DeadLetter(
        id=DeadLetterId(row["id"]),
        step=None if step is None else StepName(step),
        direction=None if direction is None else Direction(direction),
        reason=DeadLetterReason(row["reason"]),
        last_error=row["last_error"],
        opened_time=row["opened_time"],
        closed_time=row["closed_time"],
    )


def definition(row: RowMapping) -> StoredDefinition:
    """A definition from its row."""
    return StoredDefinition(
        name=row["name"],
        version=DefinitionVersion(row["version"]),
        content=row["content"],
        created_time=row["created_time"],
    )


def participant(row: RowMapping) -> ParticipantRow:
    """A participant from its row.

    Raises:
        ValueError: its services are no list of names.
    """
    services: object = json.loads(row["services"])
    if not isinstance(services, list) or not all(isinstance(name, str) for name in cast("list[object]", services)):
        raise ValueError("its services are no list of names")
    return ParticipantRow(
        name=row["name"],
        services=tuple(cast("list[str]", services)),
        descriptors=row["descriptors"],
        created_time=row["created_time"],
        updated_time=row["updated_time"],
        connection=row["connection"],
    )


def instance(row: RowMapping) -> InstanceRow:
    """A participant's instance from its row."""
    return InstanceRow(
        participant=row["participant"],
        instance_id=row["instance_id"],
        address=row["address"],
        capacity=row["capacity"],
        lease_end_time=row["lease_end_time"],
    )
