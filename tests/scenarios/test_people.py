"""What people do to sagas, over real gRPC: retry and resolve what is parked, abort, terminate; every refusal with its
reason, every deed in the audit.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

import grpc
import pytest

from amends import Retry, Saga
from amends.options import Guarantee, OnUnknown
from amends.v1 import operator_service_pb2 as pb
from amends.v1 import saga_pb2
from scenario.v1.scenario_pb2 import DoResponse, FindResponse, ScenarioInput, ScenarioOutput
from tests.integration.api.refusals import refused
from tests.scenarios.desk import Desk, intent_of, resolution, state_of
from tests.scenarios.inside import inside
from tests.scenarios.raw import RawSteps, Reply, raw_steps
from tests.scenarios.sagas import Do, Undo
from tests.scenarios.test_lookups import DoFindable, Find

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping
    from pathlib import Path

pytestmark = pytest.mark.scenario

SHORT = Retry(
    initial_delay=timedelta(milliseconds=10),
    maximum_delay=timedelta(milliseconds=20),
    total_timeout=timedelta(milliseconds=150),
    maximum_refusal_count=2,
)
LONG = Retry(initial_delay=timedelta(seconds=60), maximum_delay=timedelta(seconds=60), total_timeout=timedelta(hours=1))
NO = Reply(code=grpc.StatusCode.FAILED_PRECONDITION, text="no")
LOST = Reply(code=grpc.StatusCode.UNAVAILABLE, text="the answer is lost")
MISSING = Reply(code=grpc.StatusCode.NOT_FOUND, text="never heard of it")
SEALED = Reply(code=grpc.StatusCode.NOT_FOUND, text="never, and never will", trailers=(("amends-sealed", "1"),))
FOUND = Reply(body=FindResponse(effect_id="found", name="b").SerializeToString())
REFUSED = grpc.StatusCode.FAILED_PRECONDITION


def saga_of(
    kinds: str, *, by_key: bool = True, sealing: bool = False, retry: Retry = SHORT
) -> Saga[ScenarioInput, ScenarioOutput]:
    """Steps a, b, c … one after the other: C compensatable, P pivot, R retriable, F compensatable with a lookup."""
    saga = Saga(f"people-{kinds.lower()}", input=ScenarioInput, output=ScenarioOutput)
    last = None
    for name, kind in zip("abcde", kinds, strict=False):
        guarantee = Guarantee.BARRIER if sealing else None
        if kind == "P":
            last = saga.pivot(name, Do(name=name), retry=retry)
        elif kind == "R":
            last = saga.retriable(name, Do(name=name), retry=retry)
        elif kind == "F":
            doubt = OnUnknown.PARK if sealing else None
            found = saga.step(
                name,
                DoFindable(name=name),
                retry=retry,
                guarantee=guarantee,
                participant="raw",
                on_unknown=doubt,
            )
            found.compensated_by(Undo(effect_id=found.response.effect_id, name=name), retry=retry)
            found.looked_up_by(Find(name=name), retry=retry)
            saga.output(ScenarioOutput)(effect_id=found.response.effect_id)
        else:
            last = saga.step(name, Do(name=name), retry=retry)
            undo = Undo(name=name) if by_key else Undo(effect_id=last.response.effect_id, name=name)
            last.compensated_by(undo, by_key=by_key, retry=retry)
    if "F" not in kinds and last is not None:
        saga.output(ScenarioOutput)(effect_id=last.response.effect_id)
    return saga


@asynccontextmanager
async def begun(
    data: Path,
    saga: Saga[ScenarioInput, ScenarioOutput],
    plan: Mapping[str, list[Reply]],
    *,
    ledger_url: str | None = None,
) -> AsyncGenerator[tuple[Desk, RawSteps]]:
    """A coordinator, a participant that does what is planned, and saga "s" on its way."""
    given = {} if ledger_url is None else {"ledger_url": ledger_url}
    async with raw_steps(plan) as steps, inside(data, **given) as coordinator:
        await coordinator.announce("raw", steps.address)
        await coordinator.client.start(saga, ScenarioInput(), saga_id="s")
        yield Desk(coordinator), steps


async def test_a_retry_gives_a_fresh_budget(tmp_path: Path) -> None:
    """L1: a retriable step that was parked is called again with its key, and the saga commits."""
    async with begun(tmp_path, saga_of("PR"), {"b": [NO]}) as (desk, steps):
        letter = await desk.open_letter("b")
        steps.plan["b/action"] = [Reply()]
        answered = await desk.retry(letter)
        assert not answered.attention_required
        ended = await desk.stands("COMMITTED")
        assert [each.HasField("close_time") for each in ended.dead_letters] == [True]
        assert {seen.metadata["idempotency-key"] for seen in steps.calls("b/action")} == {"s/b/action"}
        (entry,) = await desk.audit()
        assert (entry.verb, entry.claimed_actor, entry.reason) == ("RetryDeadLetter", "ada", "it is back")
        assert entry.actor.startswith("unauthenticated:ipv4:127.0.0.1:")
        assert entry.dead_letter_id == letter
        assert await desk.why_not_retry(letter) == (REFUSED, "DEAD_LETTER_CLOSED")


@pytest.mark.timeline
async def test_v14_a_resolved_retriable(ledger_url: str, tmp_path: Path) -> None:
    """V14, S3: a retriable step that a person resolved lets the saga commit, with the person's name."""
    async with begun(tmp_path, saga_of("PR"), {"b": [NO]}, ledger_url=ledger_url) as (desk, steps):
        letter = await desk.open_letter("b")
        refusal = await refused(desk.stub.ResolveDeadLetter(resolution(letter, "HAPPENED")))
        assert (refusal.code, refusal.reason, refusal.paths) == (
            grpc.StatusCode.INVALID_ARGUMENT,
            "RESPONSE_REQUIRED",
            ("response",),
        )
        wrong = resolution(letter, "HAPPENED", FindResponse())
        assert (await refused(desk.stub.ResolveDeadLetter(wrong))).paths == ("response",)
        contradiction = resolution(letter, "DID_NOT_HAPPEN", DoResponse(effect_id="e-1"))
        assert (await refused(desk.stub.ResolveDeadLetter(contradiction))).paths == ("response",)
        await desk.resolve(letter, "HAPPENED", DoResponse(effect_id="by hand"))
        ended = await desk.stands("COMMITTED")
        row = intent_of(ended, "b")
        assert (row.state, row.resolution, row.resolved_by) == (
            saga_pb2.Intent.STATE_RESOLVED,
            saga_pb2.RESOLUTION_HAPPENED,
            "ada",
        )
        output = ScenarioOutput()
        assert ended.output.Unpack(output)
        assert output.effect_id == "by hand"
        assert not [seen for seen in steps.seen if seen.side.endswith("/compensation")]


@pytest.mark.timeline
async def test_v14_a_waived_retriable(ledger_url: str, tmp_path: Path) -> None:
    """V14: a retriable step that did not happen is waived by name, and the saga goes forward without it."""
    async with begun(tmp_path, saga_of("PRR"), {"b": [NO]}, ledger_url=ledger_url) as (desk, _):
        await desk.resolve(await desk.open_letter("b"), "DID_NOT_HAPPEN")
        ended = await desk.stands("COMMITTED")
        assert intent_of(ended, "b").resolved_by == "ada"


@pytest.mark.timeline
async def test_v18_a_compensation_that_did_not_happen_is_still_owed(ledger_url: str, tmp_path: Path) -> None:
    """V18, S4: that a compensation did not happen settles nothing: it is refused; undone by hand settles it."""
    async with begun(tmp_path, saga_of("CC"), {"b": [NO], "undo_a": [NO]}, ledger_url=ledger_url) as (desk, _):
        letter = await desk.open_letter("a", "compensation")
        failed = await desk.stands("COMPENSATION_FAILED")
        assert failed.compensations_owed == 1
        assert await desk.why_not_resolve(letter, "DID_NOT_HAPPEN") == (REFUSED, "RESOLUTION_REFUSED")
        assert (await desk.saga()).attention_required
        await desk.resolve(letter, "UNDONE_BY_HAND")
        ended = await desk.stands("COMPENSATED")
        assert (ended.compensations_owed, ended.attention_required) == (0, False)
        assert intent_of(ended, "a", "compensation").resolved_by == "ada"


@pytest.mark.timeline
async def test_v18_an_unknown_action_that_happened_is_compensated(ledger_url: str, tmp_path: Path) -> None:
    """V18, S4: an action of which a person says that it happened is undone, with the response that they give."""
    async with begun(tmp_path, saga_of("CC", by_key=False), {"b": [LOST]}, ledger_url=ledger_url) as (desk, steps):
        letter = await desk.open_letter("b")
        await desk.stands("COMPENSATION_FAILED")
        assert not steps.calls("b/compensation"), "nothing is undone with an empty id"
        code, reason = await desk.why_not_resolve(letter, "HAPPENED")
        assert (code, reason) == (grpc.StatusCode.INVALID_ARGUMENT, "RESPONSE_REQUIRED")
        await desk.resolve(letter, "HAPPENED", DoResponse(effect_id="e-7"))
        await desk.stands("COMPENSATED")
        assert [b"e-7" in seen.request for seen in steps.calls("b/compensation")] == [True]


@pytest.mark.timeline
async def test_v19_two_operators(ledger_url: str, tmp_path: Path) -> None:
    """V19: the second who acts on a dead letter is told that it is closed, and nothing of theirs is done."""
    async with begun(tmp_path, saga_of("CC"), {"b": [NO], "undo_a": [NO, NO, Reply()]}, ledger_url=ledger_url) as (
        desk,
        steps,
    ):
        letter = await desk.open_letter("a", "compensation")
        await desk.retry(letter)
        assert await desk.why_not_resolve(letter, "UNDONE_BY_HAND") == (REFUSED, "DEAD_LETTER_CLOSED")
        assert await desk.why_not_retry(letter) == (REFUSED, "DEAD_LETTER_CLOSED")
        ended = await desk.stands("COMPENSATED")
        assert intent_of(ended, "a", "compensation").state == saga_pb2.Intent.STATE_SUCCEEDED
        assert len(steps.calls("a/compensation")) == 3
        assert [entry.verb for entry in await desk.audit()] == ["RetryDeadLetter"]


@pytest.mark.timeline
async def test_v20_terminate_then_retries_in_the_wrong_order(ledger_url: str, tmp_path: Path) -> None:
    """V20, S5: after a termination only what a person retries is called, and only once what depends on it is undone."""
    plan = {"c": [Reply(delay_s=30)]}
    async with begun(tmp_path, saga_of("CCC"), plan, ledger_url=ledger_url) as (desk, steps):
        await desk.once(lambda saga: len(saga.intents) == 3)
        assert state_of(await desk.terminate()) == "COMPENSATION_FAILED"
        failed = await desk.stands("COMPENSATION_FAILED")
        opened = {letter.step: letter.dead_letter_id for letter in failed.dead_letters}
        assert set(opened) == {"a", "b", "c"}
        assert {letter.reason for letter in failed.dead_letters} == {saga_pb2.DeadLetter.REASON_TERMINATED}
        assert await desk.why_not_retry(opened["a"]) == (REFUSED, "RETRY_OUT_OF_ORDER")
        assert await desk.why_not_retry(opened["c"]) == (REFUSED, "NOTHING_TO_REPEAT")
        await desk.resolve(opened["c"], "DID_NOT_HAPPEN")
        await desk.retry(opened["b"])
        await desk.once(lambda saga: intent_of(saga, "b", "compensation").state == saga_pb2.Intent.STATE_SUCCEEDED)
        await desk.retry(opened["a"])
        await desk.stands("COMPENSATED")
        assert [seen.side for seen in steps.seen if seen.side.endswith("/compensation")] == [
            "b/compensation",
            "a/compensation",
        ]


async def test_a_pivot_that_a_person_denies_rolls_back(tmp_path: Path) -> None:
    """V1, S6: past the point of no return nothing is compensated until a named person says that the pivot never was."""
    async with begun(tmp_path, saga_of("CP"), {"b": [LOST]}) as (desk, steps):
        letter = await desk.open_letter("b")
        refusal = await refused(desk.abort())
        assert (refusal.code, refusal.reason) == (REFUSED, "PAST_POINT_OF_NO_RETURN")
        assert await desk.why_not_resolve(letter, "UNDONE_BY_HAND") == (REFUSED, "RESOLUTION_REFUSED")
        assert not steps.calls("a/compensation")
        await desk.resolve(letter, "DID_NOT_HAPPEN")
        ended = await desk.stands("COMPENSATED")
        assert ended.failure.reason == "RESOLVED_DID_NOT_HAPPEN"
        assert len(steps.calls("a/compensation")) == 1


@pytest.mark.timeline
async def test_v13_an_abort_is_sent_again(ledger_url: str, tmp_path: Path) -> None:
    """V13, S10: an accepted abort is accepted again, before and after the saga ended, and leaves one audit entry."""
    async with begun(tmp_path, saga_of("CC", retry=LONG), {"b": [LOST]}, ledger_url=ledger_url) as (desk, steps):
        await desk.once(lambda saga: any(each.HasField("next_attempt_time") for each in saga.intents))
        answers = [await desk.abort(), await desk.abort()]
        assert all(each.abort_requested for each in answers)
        ended = await desk.stands("COMPENSATED")
        assert (ended.failure.reason, ended.failure.message) == ("ABORTED", "the customer left")
        assert state_of(await desk.abort()) == "COMPENSATED"
        assert [entry.verb for entry in await desk.audit()] == ["AbortSaga"]
        assert len(steps.calls("b/action")) == 1, "no attempt after the abort (F10)"
        assert len(steps.calls("b/compensation")) == 1, "it counts as may-have-happened"


async def test_run_now(tmp_path: Path) -> None:
    """A saga that waits a minute for its next attempt makes it at once when a person asks."""
    async with begun(tmp_path, saga_of("C", retry=LONG), {"a": [LOST, Reply()]}) as (desk, steps):
        await desk.once(lambda saga: any(each.HasField("next_attempt_time") for each in saga.intents))
        await desk.stub.RunSagaNow(pb.RunSagaNowRequest(saga_id="s"))
        await desk.stands("COMMITTED")
        assert len(steps.calls("a/action")) == 2
        refusal = await refused(desk.stub.RunSagaNow(pb.RunSagaNowRequest(saga_id="s")))
        assert (refusal.code, refusal.reason) == (REFUSED, "SAGA_NOT_RUNNING")


@pytest.mark.parametrize(
    ("lookup", "found", "reason", "end"),
    [
        pytest.param(FOUND, "DID_NOT_HAPPEN", "ACTION_HAPPENED", "COMMITTED", id="it happened, they deny it"),
        pytest.param(SEALED, "HAPPENED", "DEAD_LETTER_CLOSED", "COMPENSATED", id="it never will, they say it did"),
        pytest.param(SEALED, "DID_NOT_HAPPEN", "", "COMPENSATED", id="both say no"),
        pytest.param(FOUND, "HAPPENED", "", "COMMITTED", id="both say yes"),
        pytest.param(MISSING, "DID_NOT_HAPPEN", "", "COMPENSATED", id="the person knows more"),
        pytest.param(LOST, "DID_NOT_HAPPEN", "", "COMPENSATED", id="the participant is away"),
    ],
)
async def test_the_participant_is_asked_first(tmp_path: Path, lookup: Reply, found: str, reason: str, end: str) -> None:
    """S4: where the participant can settle it, it is asked before a person's word is taken, and its answer stands."""
    plan = {"b": [LOST], "find_b": [LOST]}
    async with begun(tmp_path, saga_of("CF", sealing=True), plan) as (desk, steps):
        letter = await desk.open_letter("b")
        before = len(steps.calls("b/lookup"))
        steps.plan["b/lookup"] = [lookup]
        response = FindResponse(effect_id="by hand") if found == "HAPPENED" else None
        if reason:
            refusal = await refused(desk.stub.ResolveDeadLetter(resolution(letter, found, response)))
            assert (refusal.code, refusal.reason) == (REFUSED, reason)
        else:
            await desk.resolve(letter, found, response)
        await desk.stands(end)
        assert len(steps.calls("b/lookup")) == before + 1
        assert not steps.calls("b/compensation")


async def test_what_was_undone_by_hand_is_not_undone_again(tmp_path: Path) -> None:
    """S4: the participant that has the action would say that it happened, and the saga would go on from that; so it is
    not asked, and the step is settled.
    """
    async with begun(tmp_path, saga_of("CF", sealing=True), {"b": [LOST], "find_b": [LOST]}) as (desk, steps):
        letter = await desk.open_letter("b")
        before = len(steps.calls("b/lookup"))
        steps.plan["b/lookup"] = [FOUND]
        await desk.resolve(letter, "UNDONE_BY_HAND")
        ended = await desk.stands("COMPENSATED")
        assert intent_of(ended, "b").resolution == saga_pb2.RESOLUTION_UNDONE_BY_HAND
        assert len(steps.calls("b/lookup")) == before
        assert not steps.calls("b/compensation")
        assert len(steps.calls("a/compensation")) == 1


async def test_nobody_is_asked_before_a_word_that_is_refused(tmp_path: Path) -> None:
    """A resolution that can't be taken changes nothing, so the participant isn't asked either."""
    async with begun(tmp_path, saga_of("CF", sealing=True), {"b": [LOST], "find_b": [LOST]}) as (desk, steps):
        letter = await desk.open_letter("b")
        before = len(steps.calls("b/lookup"))
        steps.plan["b/lookup"] = [FOUND]
        code, reason = await desk.why_not_resolve(letter, "HAPPENED")
        assert (code, reason) == (grpc.StatusCode.INVALID_ARGUMENT, "RESPONSE_REQUIRED")
        assert len(steps.calls("b/lookup")) == before
        assert (await desk.saga()).attention_required
        assert not await desk.audit()


async def test_dead_letters_are_listed_and_counted(tmp_path: Path) -> None:
    """An operator sees what is parked by method, reason and code, and each with its id."""
    async with begun(tmp_path, saga_of("CC"), {"b": [NO], "undo_a": [NO]}) as (desk, _):
        letter = await desk.open_letter("a", "compensation")
        listed = await desk.stub.ListDeadLetters(pb.ListDeadLettersRequest())
        (one,), (group,) = listed.dead_letters, listed.groups
        assert (one.dead_letter_id, one.definition_name, one.method, one.last_status_code) == (
            letter,
            "people-cc",
            "scenario.v1.StepService/Undo",
            "FAILED_PRECONDITION",
        )
        assert (group.method, group.reason, group.dead_letter_count) == (one.method, one.reason, 1)
        other = pb.ListDeadLettersRequest(reasons=[saga_pb2.DeadLetter.REASON_TIMED_OUT])
        assert not (await desk.stub.ListDeadLetters(other)).dead_letters
        nodes = (await desk.stub.ListNodes(pb.ListNodesRequest())).nodes
        assert [node.fenced for node in nodes] == [False]


async def test_what_is_not_there(tmp_path: Path) -> None:
    """Every method names what it didn't find."""
    async with inside(tmp_path) as coordinator:
        desk = Desk(coordinator)
        for call, reason in (
            (desk.retry("nothing"), "DEAD_LETTER_NOT_FOUND"),
            (desk.resolve("nothing", "HAPPENED"), "DEAD_LETTER_NOT_FOUND"),
            (desk.terminate("nothing"), "SAGA_NOT_FOUND"),
            (desk.abort("nothing"), "SAGA_NOT_FOUND"),
        ):
            refusal = await refused(call)
            assert (refusal.code, refusal.reason, refusal.resource) == (grpc.StatusCode.NOT_FOUND, reason, "nothing")
