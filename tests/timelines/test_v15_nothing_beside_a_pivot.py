"""V15: a branch that could be refused beside the pivot: its refusal would come when nothing can be undone any more."""

from __future__ import annotations

from typing import TYPE_CHECKING

import grpc
import pytest

from amends import DefinitionError
from amends.v1 import saga_definition_pb2, saga_pb2
from amends.v1.saga_service_pb2 import RegisterSagaDefinitionRequest
from tests.integration.api.refusals import refused
from tests.timelines.participant import REFUSE
from tests.timelines.sagas import ATTEMPT, GUARDED, Timeline, timeline, undoable
from tests.timelines.stage import staged

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.timeline


def definition() -> Timeline:
    """Two branches that meet in the pivot."""
    saga = timeline("v15")
    first = undoable(saga, "a", GUARDED)
    undoable(saga, "b", GUARDED, after=[first])
    saga.read_only("q", GUARDED.do(name="q"), after=[first], timeout=ATTEMPT)
    saga.pivot("p", GUARDED.do(name="p"), timeout=ATTEMPT)
    return saga


def pulled_out(saga: Timeline, step: str, *, past_the_pivot: bool) -> saga_definition_pb2.SagaDefinition:
    """The definition with a branch that the pivot doesn't wait for; or one that is announced behind it."""
    data = saga.definition()
    (pivot,) = (each for each in data.steps if each.name == "p")
    kept = [name for name in pivot.after if name != step]
    del pivot.after[:]
    pivot.after.extend(kept)
    if past_the_pivot:
        steps = sorted(data.steps, key=lambda each: each.name == step)
        del data.steps[:]
        data.steps.extend(steps)
    return data


@pytest.mark.parametrize("step", ["b", "q"])
@pytest.mark.parametrize("past_the_pivot", [False, True])
async def test_v15_it_is_refused_at_registration(
    ledger_url: str, tmp_path: Path, step: str, *, past_the_pivot: bool
) -> None:
    """S6: refused with the field's path and nothing stored; as it was meant the same definition is taken."""
    async with staged(ledger_url, tmp_path) as stage:
        assert stage.here is not None
        request = RegisterSagaDefinitionRequest(
            definition=pulled_out(definition(), step, past_the_pivot=past_the_pivot)
        )
        refusal = await refused(stage.here.sagas.RegisterSagaDefinition(request))
        assert refusal.code is grpc.StatusCode.INVALID_ARGUMENT
        assert any(path.endswith(".after") for path in refusal.paths)
        request = RegisterSagaDefinitionRequest(definition=definition().definition())
        await stage.here.sagas.RegisterSagaDefinition(request)


def test_v15_the_builder_says_so_on_the_line() -> None:
    """S6: the mistake is found where it is made."""
    saga = timeline("v15-builder")
    first = undoable(saga, "a", GUARDED)
    undoable(saga, "b", GUARDED, after=[first])
    with pytest.raises(DefinitionError, match="p"):
        saga.pivot("p", GUARDED.do(name="p"), after=[first])


async def test_v15_the_pivot_waits_for_every_branch(ledger_url: str, tmp_path: Path) -> None:
    """S6: while one of them can still be refused the pivot isn't announced; refused, everything is undone."""
    async with staged(ledger_url, tmp_path) as stage:
        stage.participant.does("b/action", REFUSE)
        await stage.start(definition())
        saga = await stage.rests()
        assert (saga.state, saga.point_of_no_return_passed) == (saga_pb2.Saga.STATE_COMPENSATED, False)
        assert not stage.journal.begun("p")
        assert stage.participant.effects("a") == 0
