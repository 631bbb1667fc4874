"""What each gRPC code proves, as an action's answer and as a compensation's; and what silence leaves open."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import grpc
import pytest

from amends import Compensated, CompensationFailed, Saga
from scenario.v1.scenario_pb2 import ScenarioInput
from tests.scenarios.inside import inside
from tests.scenarios.one_step import BOUND, SHORT, ends, one_step, outcomes, reasons, short
from tests.scenarios.raw import Reply, raw_steps
from tests.scenarios.sagas import Do, Undo

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.scenario

Code = grpc.StatusCode
NO = "no\0 \x1b[31mred \u202e"
NO_SHOWN = "no\\x00 \\x1b[31mred \\u202e"
REFUSALS = (
    Code.FAILED_PRECONDITION,
    Code.INVALID_ARGUMENT,
    Code.NOT_FOUND,
    Code.OUT_OF_RANGE,
    Code.ALREADY_EXISTS,
)
WIRING = (Code.UNIMPLEMENTED, Code.PERMISSION_DENIED, Code.UNAUTHENTICATED)
PROVES_NOTHING = tuple(code for code in Code if code not in (Code.OK, *REFUSALS, *WIRING))
IMPATIENT = timedelta(milliseconds=100)
"""Far less than the slow step takes."""

NEXT_IS_REFUSED = {"no": [Reply(code=Code.FAILED_PRECONDITION)]}


async def test_every_code_as_an_actions_answer(tmp_path: Path) -> None:
    """S4: only a documented refusal proves that nothing happened; every other code leaves it unknown, and the step is
    undone. No code parks a step whose undo finds its work by key.
    """
    plan = {code.name.lower(): [Reply(code=code, text=NO)] for code in Code if code is not Code.OK}
    async with raw_steps(plan) as steps, inside(tmp_path) as coordinator:
        await coordinator.announce("raw", steps.address)
        found = await ends(coordinator, {name: one_step(name) for name in plan})
    rejected, unknown = ("COMPENSATED", "REJECTED", ""), ("COMPENSATED", "UNKNOWN", "SUCCEEDED")
    expected = {code.name.lower(): (rejected, {"REJECTED"}, 1) for code in REFUSALS}
    expected |= {code.name.lower(): (rejected, {"WIRING_FAULT"}, 2) for code in WIRING}
    told = {name: (short(saga), outcomes(saga), len(steps.calls(f"{name}/action"))) for name, saga in found.items()}
    assert {name: told[name] for name in expected} == expected
    for code in PROVES_NOTHING:
        state, outcome, calls = told[code.name.lower()]
        assert (state, outcome) == (unknown, {"UNKNOWN"}), code
        assert calls > 1, f"{code} was not repeated"
    assert {saga.failure.message for saga in found.values()} == {NO_SHOWN}
    assert all(saga.unproven == (short(saga) == unknown) for saga in found.values())


async def test_every_code_as_a_compensations_answer(tmp_path: Path) -> None:
    """S4: only OK settles the undo of a step that happened; everything else is repeated within its budget and then
    waits for a person, never claimed as undone.
    """
    codes = [code for code in Code if code is not Code.OK]
    plan = {f"undo_{code.name.lower()}": [Reply(code=code, text=NO)] for code in codes}
    async with raw_steps(plan | NEXT_IS_REFUSED) as steps, inside(tmp_path) as coordinator:
        await coordinator.announce("raw", steps.address)
        names = [code.name.lower() for code in codes]
        found = await ends(coordinator, {name: one_step(name, refused_after=True) for name in names})
    expected = {code.name.lower(): ["REFUSED"] for code in REFUSALS}
    expected |= {code.name.lower(): ["NO_HANDLER"] for code in WIRING}
    expected |= {code.name.lower(): ["BUDGET_SPENT"] for code in PROVES_NOTHING}
    assert {name: reasons(saga) for name, saga in found.items()} == expected
    assert {short(saga) for saga in found.values()} == {("COMPENSATION_FAILED", "SUCCEEDED", "PARKED")}
    assert all(saga.attention_required and saga.compensations_owed == 1 for saga in found.values())
    assert all(len(steps.calls(f"{name}/compensation")) > 1 for name in names)


async def test_too_slow_until_the_budget_is_spent_undone_by_key(tmp_path: Path) -> None:
    """F02, S4: an action that answers after its deadline every time may have happened: it is undone first, then the
    one before; the one behind it was never called and is not undone.
    """
    slow = Reply(delay_s=0.4)
    saga = Saga("slow", input=ScenarioInput)
    for name in ("a", "b", "c"):
        saga.step(name, Do(name=name), timeout=IMPATIENT if name == "b" else None, retry=SHORT).compensated_by(
            Undo(name=name), by_key=True, retry=SHORT
        )
    async with raw_steps({"b": [slow]}) as steps, inside(tmp_path) as coordinator:
        await coordinator.announce("raw", steps.address)
        end = await (await coordinator.client.start(saga, ScenarioInput(), saga_id="s")).wait(BOUND)
        assert isinstance(end, Compensated)
        assert end.unproven
    sides = [seen.side for seen in steps.seen]
    assert sides[0] == "a/action"
    assert sides[-2:] == ["b/compensation", "a/compensation"]
    assert set(sides[1:-2]) == {"b/action"}
    assert steps.calls("b/compensation")[0].metadata["amends-action-key"] == "s/b/action"


async def test_too_slow_and_the_undo_needs_the_missing_response(tmp_path: Path) -> None:
    """S4: a compensation is never called with an empty id: the action parks as OUTCOME_UNKNOWN, the others are undone,
    and the saga says that it needs a person.
    """
    saga = Saga("slow", input=ScenarioInput)
    for name in ("a", "b"):
        step = saga.step(name, Do(name=name), timeout=IMPATIENT if name == "b" else None, retry=SHORT)
        step.compensated_by(Undo(effect_id=step.response.effect_id, name=name), retry=SHORT)
    async with raw_steps({"b": [Reply(delay_s=0.4)]}) as steps, inside(tmp_path) as coordinator:
        await coordinator.announce("raw", steps.address)
        end = await (await coordinator.client.start(saga, ScenarioInput(), saga_id="s")).wait(BOUND)
        found = await coordinator.client.get("s")
    assert isinstance(end, CompensationFailed)
    assert [(letter.step, letter.reason) for letter in end.dead_letters] == [("b", "OUTCOME_UNKNOWN")]
    assert found.attention_required
    assert found.compensations_owed == 1
    assert [seen.side for seen in steps.seen if seen.side.endswith("compensation")] == ["a/compensation"]


async def test_a_seal_settles_what_silence_left_open(tmp_path: Path) -> None:
    """S4: after an attempt that ended unknown an unsealed no means "not yet" and is repeated; a sealed one is final,
    and then nothing is undone.
    """
    lost, no = Reply(code=Code.UNAVAILABLE), Reply(code=Code.FAILED_PRECONDITION, text="no")
    sealed = Reply(code=Code.FAILED_PRECONDITION, text="no", trailers=(("amends-sealed", "1"),))
    plan = {"sealed": [lost, sealed], "unsealed": [lost, no], "sealed_later": [lost, no, sealed]}
    async with raw_steps(plan) as steps, inside(tmp_path) as coordinator:
        await coordinator.announce("raw", steps.address)
        sagas = {name: one_step(name) for name in plan}
        found = await ends(coordinator, sagas)
    assert short(found["sealed"]) == ("COMPENSATED", "REJECTED", "")
    assert not found["sealed"].unproven
    assert short(found["unsealed"]) == ("COMPENSATED", "UNKNOWN", "SUCCEEDED")
    assert found["unsealed"].unproven
    assert len(steps.calls("unsealed/action")) == 3, "one unknown, and two refusals that spent the budget"
    assert short(found["sealed_later"]) == ("COMPENSATED", "REJECTED", "")


async def test_not_found_by_a_compensation(tmp_path: Path) -> None:
    """S4: "not found" means "nothing to undo" only where the action was never proven to have happened."""
    missing = Reply(code=Code.NOT_FOUND, text="what?")
    plan = {"unknown": [Reply(code=Code.INTERNAL)], "undo_unknown": [missing], "undo_known": [missing]}
    async with raw_steps(plan | NEXT_IS_REFUSED) as steps, inside(tmp_path) as coordinator:
        await coordinator.announce("raw", steps.address)
        sagas = {"unknown": one_step("unknown"), "known": one_step("known", refused_after=True)}
        found = await ends(coordinator, sagas)
    assert short(found["unknown"]) == ("COMPENSATED", "UNKNOWN", "NOTHING_TO_UNDO")
    assert short(found["known"]) == ("COMPENSATION_FAILED", "SUCCEEDED", "PARKED")
