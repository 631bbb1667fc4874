"""V5: a retriable step is refused after the pivot."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from amends.v1 import saga_pb2
from tests.timelines.books import SEAL, Code, Said
from tests.timelines.participant import OK, REFUSE, Turn
from tests.timelines.sagas import ATTEMPT, GUARDED, KEYED, REFUSALS, Promise, Timeline, timeline, undoable
from tests.timelines.stage import staged

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.timeline

SEALED = Turn(instead=Said(code=Code.NOT_FOUND, text="never", trailers=SEAL))


def definition(promise: Promise) -> Timeline:
    """A step, the pivot, and a retriable step."""
    saga = timeline("v05")
    undoable(saga, "a", promise)
    saga.pivot("p", promise.do(name="p"), timeout=ATTEMPT)
    saga.retriable("r", promise.do(name="r"), timeout=ATTEMPT, retry=REFUSALS)
    return saga


@pytest.mark.parametrize("refusal", [REFUSE, SEALED], ids=["refused", "sealed"])
async def test_v05_it_is_repeated_then_parked(ledger_url: str, tmp_path: Path, refusal: Turn) -> None:
    """S3, S6: whatever the refusal says, the saga stays RUNNING with a dead letter and nothing is compensated."""
    async with staged(ledger_url, tmp_path) as stage:
        stage.participant.does("r/action", refusal)
        await stage.start(definition(KEYED))
        saga = await stage.rests()
        assert saga.state == saga_pb2.Saga.STATE_RUNNING
        assert [each.reason for each in saga.dead_letters] == [saga_pb2.DeadLetter.REASON_REFUSED]
        assert len(stage.journal.begun("r")) == 3
        assert not stage.journal.effects("compensation")
        assert (stage.participant.effects("a"), stage.participant.effects("p")) == (1, 1)


@pytest.mark.parametrize("promise", [GUARDED, KEYED], ids=["barrier", "key"])
async def test_v05_it_goes_on_once_it_is_not_refused_any_more(
    ledger_url: str, tmp_path: Path, promise: Promise
) -> None:
    """S3: a participant that keeps the barrier's rules never seals a retriable step's refusal, so it commits."""
    async with staged(ledger_url, tmp_path) as stage:
        stage.participant.does("r/action", REFUSE, REFUSE, OK)
        await stage.start(definition(promise))
        assert (await stage.rests()).state == saga_pb2.Saga.STATE_COMMITTED
        assert len(stage.journal.begun("r")) == 3
