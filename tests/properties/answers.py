"""Every kind of answer that a call can get; the first of each direction is the plain OK."""

from __future__ import annotations

from amends_coordinator.core.answer import Answer
from amends_coordinator.core.states import Direction, Outcome

OK = Answer(outcome=Outcome.SUCCEEDED, status_code="OK", response=b"done")
OK_AND_ABORT = Answer(outcome=Outcome.SUCCEEDED, status_code="OK", response=b"done", abort_reason="changed my mind")
REFUSED = Answer(outcome=Outcome.REJECTED, status_code="FAILED_PRECONDITION", message="no")
REFUSED_SEALED = Answer(outcome=Outcome.REJECTED_SEALED, status_code="FAILED_PRECONDITION", message="never")
NOT_FOUND = Answer(outcome=Outcome.REJECTED, status_code="NOT_FOUND", message="no such thing")
NOT_FOUND_SEALED = Answer(outcome=Outcome.REJECTED_SEALED, status_code="NOT_FOUND", message="and never will be")
UNKNOWN = Answer(outcome=Outcome.UNKNOWN, status_code="DEADLINE_EXCEEDED", message="no answer in time")
NOT_SENT = Answer(outcome=Outcome.NOT_SENT, message="no connection")
NOT_FOUND_NOT_RUN = Answer(outcome=Outcome.NOT_SENT, status_code="NOT_FOUND", message="did not even look")
MISWIRED = Answer(outcome=Outcome.WIRING_FAULT, status_code="UNIMPLEMENTED", message="no such method")

ANSWERS: dict[Direction, tuple[Answer, ...]] = {
    Direction.ACTION: (OK, OK_AND_ABORT, REFUSED, REFUSED_SEALED, NOT_FOUND, UNKNOWN, NOT_SENT, MISWIRED),
    Direction.LOOKUP: (OK, OK_AND_ABORT, NOT_FOUND, NOT_FOUND_SEALED, REFUSED, UNKNOWN, NOT_FOUND_NOT_RUN, MISWIRED),
    Direction.COMPENSATION: (OK, NOT_FOUND, NOT_FOUND_SEALED, REFUSED, UNKNOWN, NOT_FOUND_NOT_RUN, MISWIRED),
}
