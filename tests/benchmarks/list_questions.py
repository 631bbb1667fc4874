"""What `make bench-list` asks: every filter of `ListSagas`, alone and with state and time, and combinations that are
meant to hurt.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from amends.v1.saga_pb2 import Saga
from amends.v1.saga_service_pb2 import ListSagasRequest as Asked

BY_NAME = "first"
"""The participant that orders and payments name."""

BY_SERVICE = "everything"
"""The participant that serves the other definitions' service."""

FAILED = Saga.STATE_COMPENSATION_FAILED
ENDED = (Saga.STATE_COMMITTED, Saga.STATE_COMPENSATED)


def ago(now: datetime, **span: float) -> Timestamp:
    """An instant before now."""
    stamp = Timestamp()
    stamp.FromDatetime(now - timedelta(**span))
    return stamp


def singles(now: datetime, newest_order: str) -> dict[str, Asked]:
    """Each filter by itself."""
    return {
        "nothing": Asked(),
        "running": Asked(states=[Saga.STATE_RUNNING]),
        "committed": Asked(states=[Saga.STATE_COMMITTED]),
        "definition": Asked(definition_name="order"),
        "definition_of_old": Asked(definition_name="legacy"),
        "definition_rare": Asked(definition_name="rare"),
        "version": Asked(definition_name="order", definition_version=newest_order),
        "label_of_all": Asked(labels={"env": "production"}),
        "label_of_some": Asked(labels={"tenant": "t7"}),
        "label_of_few": Asked(labels={"campaign": "spring"}),
        "label_of_one": Asked(labels={"order": "o-4711"}),
        "label_of_none": Asked(labels={"env": "test"}),
        "attention": Asked(attention_required=True),
        "unproven": Asked(unproven=True),
        "owed": Asked(compensations_owed=True),
        "participant_named": Asked(participant=BY_NAME),
        "participant_serving": Asked(participant=BY_SERVICE),
        "participant_chosen": Asked(participant="bank-a"),
        "created_since": Asked(earliest_create_time=ago(now, hours=5)),
        "created_until": Asked(latest_create_time=ago(now, days=15)),
        "updated_since": Asked(earliest_update_time=ago(now, minutes=5)),
        "updated_until": Asked(latest_update_time=ago(now, days=25)),
        "updated_within": Asked(
            earliest_update_time=ago(now, days=12, minutes=2), latest_update_time=ago(now, days=12)
        ),
        "stalled": Asked(stalled_for=Duration(seconds=3_600)),
    }


def combined(name: str, alone: Asked, now: datetime) -> Iterator[tuple[str, Asked]]:
    """A filter alone, with states, with a span of time, and with both."""
    times = Asked(earliest_create_time=ago(now, days=9), latest_create_time=ago(now, days=1, hours=1))
    has_times = alone.HasField("earliest_create_time") or alone.HasField("latest_create_time")
    yield name, alone
    for state, states in (("failed", [FAILED]), ("ended", ENDED)):
        if not alone.states:
            yield f"{name}_{state}", _and(alone, Asked(states=states))
            if not has_times:
                yield f"{name}_{state}_time", _and(alone, Asked(states=states), times)
    if not has_times:
        yield f"{name}_time", _and(alone, times)


def hard(now: datetime) -> dict[str, Asked]:
    """Combinations in which a wrong way would lead past very many sagas."""
    wide = Asked(earliest_update_time=ago(now, days=20), latest_update_time=ago(now, days=10))
    return {
        "old_definition_and_label_of_all": Asked(definition_name="legacy", labels={"env": "production"}),
        "definition_and_label_of_some": Asked(definition_name="payment", labels={"tenant": "t7"}),
        "two_labels": Asked(labels={"env": "production", "campaign": "spring"}),
        "label_of_all_and_failed": Asked(labels={"env": "production"}, states=[FAILED]),
        "attention_that_committed": Asked(attention_required=True, states=[Saga.STATE_COMMITTED]),
        "unproven_of_one_tenant": Asked(unproven=True, labels={"tenant": "t7"}),
        "updated_wide": wide,
        "updated_wide_rare": _and(Asked(definition_name="rare"), wide),
        "updated_since_of_tenant": Asked(labels={"tenant": "t7"}, earliest_update_time=ago(now, hours=1)),
        "updated_since_of_old": Asked(definition_name="legacy", earliest_update_time=ago(now, days=5)),
        "chosen_and_compensated": Asked(participant="bank-a", states=[Saga.STATE_COMPENSATED]),
        "everything_at_once": _and(
            Asked(definition_name="order", labels={"env": "production", "tenant": "t7"}, states=ENDED, unproven=True),
            Asked(participant=BY_NAME),
            wide,
        ),
    }


def now() -> datetime:
    """The moment that the questions are about."""
    return datetime.now(UTC)


def _and(first: Asked, *others: Asked) -> Asked:
    both = Asked()
    for each in (first, *others):
        both.MergeFrom(each)
    return both
