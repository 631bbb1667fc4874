"""How a call is answered that the barrier has decided: from the row, or for good."""

from __future__ import annotations

from typing import TYPE_CHECKING

import grpc

from amends.barrier.rules import Do, Found
from amends.participant import wire
from amends.participant.context import Direction, cut_utf8
from amends.participant.guards import Answer
from amends.participant.refusals import Rejected

if TYPE_CHECKING:
    from amends.barrier.calls import GuardedCall
    from amends.barrier.entering import Entered
    from amends.barrier.statements import Row
    from amends.participant.guards import Verdict


def verdict_of(entered: Entered, call: GuardedCall) -> Verdict | None:
    """The answer to a call, None where its body runs. `RESUME` is answered as for work inside the database, which never
    leaves such a row: an effect must look at it first.
    """
    match entered.do:
        case Do.RUN:
            return None
        case Do.REPEAT:
            assert entered.row is not None, "only a row says what was answered"
            return Answer(response=entered.row.response or b"", abort_reason=entered.row.abort_reason)
        case Do.NOTHING:
            return Answer(response=b"")
        case Do.REFUSE:
            assert entered.row is not None, "only a row says what was refused"
            return wire.rejected(refusal_of(entered.row), participant=call.served.participant)
        case Do.REFUSE_LATE | Do.ABSENT | Do.ABSENT_SO_FAR:
            return wire.rejected(_ABSENT[entered.do](call), participant=call.served.participant)
        case Do.RESUME if entered.row is not None and _is_looked_up(entered.row, call):
            return _of_an_undone(entered.row, call)
        case Do.RESUME:
            return wire.key_in_use(_begun(call))
        case Do.WAIT:
            return wire.key_in_use(
                f"a copy of this call is running (key {call.step.key} of ledger {call.step.ledger!r}), and this one "
                "was not carried out: ask again when it has ended"
            )


def _is_looked_up(row: Row, call: GuardedCall) -> bool:
    """Whether a lookup found an action whose compensation has begun."""
    return call.step.direction is Direction.LOOKUP and row.state is Found.UNDONE


def _of_an_undone(action: Row, call: GuardedCall) -> Verdict:
    """What had become of it by then, where that was told."""
    if action.response is not None:
        return Answer(response=action.response, abort_reason=action.abort_reason)
    return wire.key_in_use(
        f"the compensation of step {call.step.step} of saga {call.step.saga_id} has begun, and what had become of the "
        "action by then was never told"
    )


def refusal_of(row: Row) -> Rejected:
    """The refusal that was written down, sealed."""
    code = grpc.StatusCode[row.code or grpc.StatusCode.FAILED_PRECONDITION.name]
    return Rejected(row.message or "", reason=row.reason or "REJECTED", code=code, sealed=True)


def kept(refusal: Rejected) -> Rejected:
    """A refusal as it is written down and told: sealed, as long as what is sent, without what databases don't store."""
    return Rejected(
        _storable(refusal.message, wire.TEXT_LIMIT_BYTES),
        reason=_storable(refusal.reason, wire.REASON_LIMIT_BYTES),
        code=refusal.code,
        sealed=True,
    )


def columns_of(refusal: Rejected) -> dict[str, object]:
    """The columns of its row that say what was refused."""
    return {"code": refusal.code.name, "message": refusal.message, "reason": refusal.reason}


def _storable(text: str, limit_bytes: int) -> str:
    return cut_utf8(text.replace("\0", "\N{REPLACEMENT CHARACTER}"), limit_bytes).decode("utf-8")


def _late(call: GuardedCall) -> Rejected:
    return Rejected(
        f"the action of step {call.step.step} came after its compensation or lookup, and was not carried out: it never "
        "will be",
        reason="HANGING_ACTION",
        sealed=True,
    )


def _never(call: GuardedCall) -> Rejected:
    text = f"the action of step {call.step.step} was not carried out, and never will be"
    return Rejected(text, reason="NEVER", code=grpc.StatusCode.NOT_FOUND, sealed=True)


def _not_yet(call: GuardedCall) -> Rejected:
    text = f"the action of step {call.step.step} was not carried out yet"
    return Rejected(text, reason="NOT_YET", code=grpc.StatusCode.NOT_FOUND)


_ABSENT = {Do.REFUSE_LATE: _late, Do.ABSENT: _never, Do.ABSENT_SO_FAR: _not_yet}


def _begun(call: GuardedCall) -> str:
    instead = "barrier.effect" if call.step.direction is not Direction.LOOKUP else "barrier.effect in the lookup"
    return (
        f"an effect outside the database was begun for step {call.step.step} of saga {call.step.saga_id}, and only its "
        f"provider knows what became of it: use {instead}, which can ask"
    )
