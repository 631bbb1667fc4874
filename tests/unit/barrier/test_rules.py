"""The barrier's tables, row by row, as they were thought out: a change of one is a change of a promise."""

from __future__ import annotations

import grpc
import pytest

from amends.barrier.answers import verdict_of
from amends.barrier.calls import GuardedCall
from amends.barrier.entering import LEAVES_MARK, Entered
from amends.barrier.rules import RULES, Do, Found, Question, is_recorded, lookup_of, what_to_do
from amends.barrier.statements import Row
from amends.participant.context import Direction, ServedCall, StepContext, StepKind
from amends.participant.guards import Answer
from amends.participant.wire import Refusal

STEP = StepContext.from_metadata(
    (
        ("idempotency-key", "s-1/pay/action"),
        ("amends-key-uuid", "8a6e0804-2bd0-5672-b79d-d97027f9071a"),
        ("amends-ledger", "default"),
        ("amends-saga-id", "s-1"),
        ("amends-step", "pay"),
        ("amends-kind", "compensatable"),
        ("amends-direction", "action"),
        ("amends-attempt", "1"),
    )
)
SERVED = ServedCall(participant="payments", method="p.S/Pay", request=b"ten", threaded=False)
CALL = GuardedCall(STEP, SERVED)
ROW = Row(
    key="s-1/pay/action",
    method="p.S/Pay",
    state=Found.DONE,
    request_hash=None,
    response=b"response",
    abort_reason=b"sold out",
    code="OUT_OF_RANGE",
    message="too much",
    reason="TOO_MUCH",
)

ACTION, UNDO, UNDONE_ACTION = Question.ACTION, Question.UNDO, Question.UNDONE_ACTION
LOOKUP, RETRIABLE_LOOKUP = Question.LOOKUP, Question.RETRIABLE_LOOKUP


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (Found.NEVER, (Do.RUN, Do.RUN, Do.NOTHING, Do.ABSENT, Do.ABSENT_SO_FAR)),
        (Found.RUNNING, (Do.WAIT, Do.WAIT, Do.WAIT, Do.WAIT, Do.WAIT)),
        (Found.STARTED, (Do.RESUME, Do.RESUME, Do.RESUME, Do.RESUME, Do.RESUME)),
        (Found.DONE, (Do.REPEAT, Do.REPEAT, Do.RUN, Do.REPEAT, Do.REPEAT)),
        (Found.REJECTED, (Do.REFUSE, None, Do.NOTHING, Do.ABSENT, Do.ABSENT_SO_FAR)),
        (Found.NULL, (Do.REFUSE_LATE, None, Do.NOTHING, Do.ABSENT, Do.ABSENT_SO_FAR)),
        (Found.UNDONE, (Do.REFUSE_LATE, None, Do.RESUME, Do.RESUME, Do.RESUME)),
    ],
)
def test_the_tables(found: Found, expected: tuple[Do | None, ...]) -> None:
    """S4: what each question is answered where this was found; None: nothing of ours writes such a row."""
    assert tuple(RULES[question].get(found) for question in Question) == expected


def test_what_can_not_stand_there_is_an_error() -> None:
    """S4: a compensation's row that somebody made a mark is nothing to be guessed at."""
    with pytest.raises(ValueError, match="a row of state null can't stand where undo asks"):
        what_to_do(UNDO, Found.NULL)


@pytest.mark.parametrize("question", Question)
@pytest.mark.parametrize("found", Found)
def test_who_did_not_run_never_does_after_a_seal(question: Question, found: Found) -> None:
    """F03, F04: whatever leaves a mark or promises never turns every later action away."""
    do = RULES[question].get(found)
    if do in LEAVES_MARK:
        left = Found.NULL if found is Found.NEVER else found
        assert RULES[ACTION][left] in {Do.REFUSE, Do.REFUSE_LATE}


@pytest.mark.parametrize("found", Found)
def test_a_retriable_step_is_never_refused_for_good(found: Found) -> None:
    """S6: no lookup of one seals."""
    assert RULES[RETRIABLE_LOOKUP][found] is not Do.ABSENT
    assert lookup_of(StepKind.RETRIABLE) is RETRIABLE_LOOKUP


def test_which_refusals_are_written_down() -> None:
    """S4: those of the actions that can be refused for good."""
    recorded = {(direction, kind) for direction in Direction for kind in StepKind if is_recorded(direction, kind)}
    assert recorded == {(Direction.ACTION, StepKind.COMPENSATABLE), (Direction.ACTION, StepKind.PIVOT)}


@pytest.mark.parametrize(
    ("do", "code", "sealed"),
    [
        (Do.REFUSE, grpc.StatusCode.OUT_OF_RANGE, True),
        (Do.REFUSE_LATE, grpc.StatusCode.FAILED_PRECONDITION, True),
        (Do.ABSENT, grpc.StatusCode.NOT_FOUND, True),
        (Do.ABSENT_SO_FAR, grpc.StatusCode.NOT_FOUND, False),
        (Do.RESUME, grpc.StatusCode.ABORTED, False),
        (Do.WAIT, grpc.StatusCode.ABORTED, False),
    ],
)
def test_how_a_no_is_said(do: Do, code: grpc.StatusCode, sealed: bool) -> None:
    """S4: only what a durable row makes true is sealed, and what isn't known is no refusal."""
    verdict = verdict_of(Entered(do, ROW), CALL)
    assert isinstance(verdict, Refusal)
    assert (verdict.code, ("amends-sealed", "1") in verdict.trailers) == (code, sealed)


def test_how_a_yes_is_said() -> None:
    """S4: with what stands in the row."""
    assert verdict_of(Entered(Do.REPEAT, ROW), CALL) == Answer(response=b"response", abort_reason=b"sold out")
    assert verdict_of(Entered(Do.NOTHING, None), CALL) == Answer(response=b"")
    assert verdict_of(Entered(Do.RUN, None), CALL) is None


def test_what_tells_a_request_from_another() -> None:
    """F06: the method and the bytes, which can't be taken for each other."""
    others = [
        SERVED._replace(request=b"ninety-nine"),
        SERVED._replace(method="p.S/Refund"),
        SERVED._replace(method="p.S/Payten", request=b""),
    ]
    hashes = {GuardedCall(STEP, served).request_hash for served in (SERVED, *others)}
    assert len(hashes) == 1 + len(others)
    assert GuardedCall(STEP, SERVED._replace(participant="other")).request_hash == CALL.request_hash
