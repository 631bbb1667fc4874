"""What lists of sagas let through, said plainly: the ledger in memory looks at every saga."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from amends_coordinator.core.saga import Saga
    from amends_coordinator.ledger.memory_store import Record
    from amends_coordinator.ports.listing import SagaFilter


def lets_through(wanted: SagaFilter, record: Record) -> bool:
    """Whether a saga passes everything that is set."""
    saga = record.stored.saga
    return (
        saga.state in wanted.possible_states
        and wanted.definition_name in ("", saga.plan.name)
        and wanted.definition_version in ("", saga.plan.version)
        and all(saga.labels.get(key) == value for key, value in wanted.labels.items())
        and (saga.attention_required or not wanted.attention_required)
        and (saga.unproven or not wanted.unproven)
        and (saga.compensations_owed > 0 or not wanted.compensations_owed)
        and _is_served(wanted, record)
        and wanted.created.holds(saga.created_time)
        and wanted.updated.holds(saga.updated_time)
        and _is_stalled(wanted, saga)
    )


def _is_served(wanted: SagaFilter, record: Record) -> bool:
    served, plan = wanted.served_by, record.stored.saga.plan
    if served is None:
        return True
    by_definition = plan.name in served.names or (plan.name, plan.version) in served.versions
    return by_definition or served.participant in record.participants


def _is_stalled(wanted: SagaFilter, saga: Saga) -> bool:
    if wanted.stalled_since is None:
        return True
    unfinished = not saga.state.ended or saga.due_time is not None
    return unfinished and saga.progress_time <= wanted.stalled_since
