"""What a call's metadata becomes, and where the current step can be had."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amends.participant import ActionTarget, Direction, NotInStep, StepContext, StepKind, current_step, step_context
from amends.participant.context import StoredAction, cut_utf8
from timeline.v1 import timeline_pb2

COMPENSATION = {
    "idempotency-key": "order-1/reserve/compensation",
    "amends-key-uuid": "8a6e0804-2bd0-5672-b79d-d97027f9071a",
    "amends-ledger": "staging",
    "amends-saga-id": "order-1",
    "amends-step": "reserve",
    "amends-kind": "COMPENSATABLE",
    "amends-direction": "COMPENSATION",
    "amends-attempt": "3",
    "amends-action-key": "order-1/reserve/action",
    "amends-action-key-uuid": "74738ff5-5367-5958-9aee-98fffdcd1876",
    "amends-action-target": "same",
    "amends-step-time": "2026-11-30T10:00:00.250000Z",
    "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "tracestate": "vendor=1",
}
ACTION = {key: value for key, value in COMPENSATION.items() if "action" not in key and "trace" not in key} | {
    "idempotency-key": "order-1/reserve/action",
    "amends-direction": "action",
}


def test_metadata_becomes_a_step() -> None:
    """S2: a handler sees the key, and the key that its action was called with, as the coordinator sent them."""
    step = StepContext.from_metadata(COMPENSATION.items(), time_remaining=lambda: 1.5)
    assert step == StepContext.from_metadata(COMPENSATION.items())
    assert (step.saga_id, step.step, step.ledger, step.attempt) == ("order-1", "reserve", "staging", 3)
    assert (step.key, step.key_uuid) == (COMPENSATION["idempotency-key"], COMPENSATION["amends-key-uuid"])
    assert (step.action_key, step.action_key_uuid) == (
        COMPENSATION["amends-action-key"],
        COMPENSATION["amends-action-key-uuid"],
    )
    assert (step.kind, step.direction) == (StepKind.COMPENSATABLE, Direction.COMPENSATION)
    assert step.action_target is ActionTarget.SAME
    assert step.step_time == datetime(2026, 11, 30, 10, 0, 0, 250_000, tzinfo=UTC)
    assert (step.traceparent, step.tracestate) == (COMPENSATION["traceparent"], "vendor=1")
    assert step.time_remaining() == 1.5


def test_an_action_has_no_action_key() -> None:
    """S2: what only compensations and lookups carry is None on an action."""
    step = StepContext.from_metadata(ACTION.items())
    assert (step.action_key, step.action_key_uuid, step.action_target) == (None, None, None)
    assert (step.traceparent, step.tracestate, step.time_remaining()) == (None, None, None)


def test_a_step_shows_what_it_is_and_nothing_else_that_came_with_the_call() -> None:
    """L2: a token that came along stands in no log that a step is written to."""
    metadata = {**ACTION, "authorization": "Bearer s3cret"}
    step = StepContext.from_metadata(metadata.items())
    assert step == StepContext.from_metadata(ACTION.items())
    assert hash(step) == hash(StepContext.from_metadata(ACTION.items()))
    assert step != StepContext.from_metadata({**ACTION, "amends-attempt": "4"}.items())
    assert "order-1/reserve/action" in repr(step)
    assert "s3cret" not in repr(step)


@pytest.mark.parametrize("missing", ["amends-step", "amends-kind", "amends-direction", "amends-attempt"])
def test_missing_metadata_is_named(missing: str) -> None:
    """L2: a call that can't be understood is refused with what is missing, not run with a guess."""
    with pytest.raises(NotInStep, match=f"{missing} is missing"):
        StepContext.from_metadata((key, value) for key, value in ACTION.items() if key != missing)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("amends-attempt", "first"),
        ("amends-attempt", "0"),
        ("amends-kind", "SOMETHING"),
        ("amends-direction", "sideways"),
        ("amends-step-time", "yesterday"),
        ("amends-action-target", "nobody"),
    ],
)
def test_malformed_metadata_is_refused(key: str, value: str) -> None:
    """L2: the same for a value that means nothing."""
    with pytest.raises(NotInStep, match="incomplete or malformed"):
        StepContext.from_metadata({**ACTION, key: value}.items())


def test_somebody_elses_idempotency_key_makes_no_step() -> None:
    """S2: a key without a saga is another caller's business."""
    with pytest.raises(NotInStep, match="not a step of a saga"):
        StepContext.from_metadata([("idempotency-key", "abc"), ("some-bin", b"\0")])


def test_bytes_in_the_place_of_a_text_count_as_missing() -> None:
    """L2: whoever hands metadata over by hand hears which of it is no text."""
    metadata: dict[str, str | bytes] = {**ACTION, "amends-ledger": b"staging"}
    with pytest.raises(NotInStep, match="amends-ledger is missing"):
        StepContext.from_metadata(metadata.items())


async def test_current_step_is_seen_by_everything_the_handler_awaits() -> None:
    """S2: tasks and threads of the handler use the key of their own call, side by side with others."""

    async def handler(saga: str) -> list[str]:
        metadata = {**ACTION, "amends-saga-id": saga, "idempotency-key": f"{saga}/reserve/action"}
        with step_context(StepContext.from_metadata(metadata.items())):
            await asyncio.sleep(0)
            in_task = asyncio.create_task(asyncio.to_thread(lambda: current_step().key))
            return [current_step().key, await in_task]

    seen = list(await asyncio.gather(handler("a"), handler("b")))
    assert seen == [["a/reserve/action"] * 2, ["b/reserve/action"] * 2]
    with pytest.raises(NotInStep, match="there is no current step"):
        current_step()


def test_abort_is_refused_once_the_step_was_answered() -> None:
    """S11: an abort that nobody would hear of is an error, not silence."""
    with step_context(StepContext.from_metadata(ACTION.items())) as step:
        step.abort_saga("first")
        step.abort_saga("second")
    assert step.state.abort_reason == b"second"
    with pytest.raises(NotInStep, match="answered already"):
        step.abort_saga("too late")


@given(text=st.text(st.characters(codec=None)), limit=st.integers(0, 40))
def test_cut_text_is_whole_characters_within_the_limit(text: str, limit: int) -> None:
    """L2: whatever a handler says, lone surrogates too, becomes UTF-8 of bounded length, cut between characters."""
    cut = cut_utf8(text, limit)
    whole = text.encode("utf-8", "replace")
    assert len(cut) <= limit
    assert whole.startswith(cut)
    assert len(cut) == len(whole) or len(whole) > limit
    assert len(whole) <= limit or limit - len(cut) < 4
    cut.decode("utf-8")


def test_what_the_action_answered_is_given_to_its_compensation() -> None:
    """S4: as the message it was; and where this process does not know it, the text says what to import."""
    step = StepContext.from_metadata(COMPENSATION.items())
    assert step.action_response is None
    answered = timeline_pb2.DoResponse(effect_id="e-1")
    step.state.stored_action = StoredAction("timeline.v1.BarrierService/Do", answered.SerializeToString())
    assert step.action_response == answered
    step.state.stored_action = StoredAction("nobody.v1.Knows/This", b"")
    with pytest.raises(NotInStep, match="import the module generated from its proto"):
        _ = step.action_response
