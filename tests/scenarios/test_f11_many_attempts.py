"""F11: a compensation that is unavailable for very many attempts, and then is back (tests/unit/core/test_budget.py has
5,000 of them); policies that make no sense.
"""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from typing import TYPE_CHECKING

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from amends import DefinitionError, Retry
from amends.v1 import saga_pb2
from amends.v1.saga_service_pb2 import RegisterSagaDefinitionRequest
from tests.integration.api.refusals import refused
from tests.scenarios.desk import intent_of
from tests.timelines.databases import sqlite_ledger
from tests.timelines.participant import FAIL, OK, REFUSE
from tests.timelines.sagas import GUARDED, Timeline, timeline, undoable
from tests.timelines.stage import staged

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.scenario

MANY = 60
CAP_S = 0.02
SLACK_S = 20.0
"""What a busy machine may add to a gap; a delay that went on doubling would be longer from the fifteenth attempt on."""


def definition() -> Timeline:
    """A step whose undo is repeated at once and for long, and one that is refused."""
    saga = timeline("f11")
    retry = Retry(
        initial_delay=timedelta(milliseconds=1),
        maximum_delay=timedelta(seconds=CAP_S),
        total_timeout=timedelta(hours=1),
    )
    undoable(saga, "a", GUARDED, undo_retry=retry)
    undoable(saga, "b", GUARDED)
    return saga


async def test_f11_delays_stay_in_the_cap_and_it_ends_after_recovery(tmp_path: Path) -> None:
    """L1: nothing overflows, nothing grows: of the attempts the first 5 and the last 20 are kept, the rest counted."""
    async with staged(sqlite_ledger(tmp_path), tmp_path) as stage:
        stage.participant.does("b/action", REFUSE)
        stage.participant.does("a/compensation", *(FAIL for _ in range(MANY)), OK)
        await stage.start(definition())
        saga = await stage.rests()
        assert saga.state == saga_pb2.Saga.STATE_COMPENSATED
        undo = intent_of(saga, "a", "compensation")
        assert undo.attempt_count == MANY + 1
        numbers = [attempt.number for attempt in undo.attempts]
        assert numbers == [*range(1, 6), *range(MANY - 18, MANY + 2)]
        assert dict(undo.attempts_left_out) == {"UNAVAILABLE": MANY + 1 - 25}
        begins = [entry.time_s for entry in stage.journal.begun("a", "compensation")]
        assert max(later - earlier for earlier, later in pairwise(begins)) < CAP_S + SLACK_S


def test_f11_the_builder_refuses_a_cap_below_the_first_delay() -> None:
    """Where it is written."""
    with pytest.raises(DefinitionError, match="longer than maximum_delay"):
        Retry(initial_delay=timedelta(seconds=2), maximum_delay=timedelta(seconds=1))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("maximum_delay", Duration(nanos=500_000)),
        ("maximum_delay", Duration(seconds=3_601)),
        ("initial_delay", Duration(seconds=-1)),
        ("initial_delay", Duration(seconds=1, nanos=-1)),
        ("total_timeout", Duration(seconds=1 << 62)),
    ],
    ids=["cap-below-base", "cap-too-long", "negative", "no-duration", "overflow"],
)
async def test_f11_registration_refuses_silly_policies(tmp_path: Path, field: str, value: Duration) -> None:
    """With the field's path, from whatever client they come."""
    silly = definition().definition()
    getattr(silly.steps[0].compensation.retry, field).CopyFrom(value)
    async with staged(sqlite_ledger(tmp_path), tmp_path) as stage:
        assert stage.here is not None
        request = RegisterSagaDefinitionRequest(definition=silly)
        refusal = await refused(stage.here.sagas.RegisterSagaDefinition(request))
        assert refusal.code is grpc.StatusCode.INVALID_ARGUMENT
        assert all("steps[0].compensation.retry" in path for path in refusal.paths)
