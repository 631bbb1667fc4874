"""Answers that no participant gave: what a coordinator hears when a fault stands between the two."""

from __future__ import annotations

from dataclasses import replace

from amends_coordinator.bootstrap import Answer, Outcome

_GARBAGE = "the response's bytes don't parse as the method's response type"


def lost(message: str, *, code: str = "UNAVAILABLE") -> Answer:
    """No answer came, which proves nothing."""
    return Answer(outcome=Outcome.UNKNOWN, status_code=code, message=message)


def not_sent(message: str) -> Answer:
    """The request was never handed to a channel."""
    return Answer(outcome=Outcome.NOT_SENT, message=message)


def refused(message: str, *, sealed: bool) -> Answer:
    """A clear no."""
    outcome = Outcome.REJECTED_SEALED if sealed else Outcome.REJECTED
    return Answer(
        outcome=outcome, status_code="FAILED_PRECONDITION", message=message, reason="FAULT_MATRIX", sealed=sealed
    )


def garbage() -> Answer:
    """OK, with bytes that are no response."""
    return Answer(outcome=Outcome.UNKNOWN, status_code="OK", message=_GARBAGE)


def with_abort(answer: Answer, reason: str) -> Answer:
    """The same answer, asking for the saga to be rolled back; one that is no success can't ask for that."""
    return replace(answer, abort_reason=reason) if answer.outcome is Outcome.SUCCEEDED else answer
