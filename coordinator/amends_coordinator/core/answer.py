"""What a participant's answer proves: the one place where status codes and trailers get their meaning.

Only a documented, clear refusal proves that nothing happened. Silence proves nothing, and neither does any code that
gRPC itself makes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from amends_coordinator.core.states import Outcome
from amends_coordinator.core.values import quick

if TYPE_CHECKING:
    from collections.abc import Mapping

    from amends_coordinator.core.plan import CallPlan

REJECTED_CODES = frozenset({"FAILED_PRECONDITION", "INVALID_ARGUMENT", "NOT_FOUND", "OUT_OF_RANGE", "ALREADY_EXISTS"})
"""Codes that gRPC libraries never make themselves: the participant's own clear no."""

WIRING_CODES = frozenset({"UNIMPLEMENTED", "PERMISSION_DENIED", "UNAUTHENTICATED"})
"""Refused at the door: nothing ran, but somebody has to mend something."""

EXECUTED_TRAILER = "amends-executed"
SEALED_TRAILER = "amends-sealed"
ABORT_TRAILER = "amends-abort-bin"


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One attempt's end.

    `status_code` is the gRPC code by name, "" where no answer came. `reason` is the participant's own short reason.
    `sealed`: the participant promises never to run this key from now on.
    `abort_reason` is set when a participant that succeeded asks for the saga to be rolled back. `retry_delay_us` is
    what
    it asked for with `RetryInfo`.
    """

    outcome: Outcome
    status_code: str = ""
    message: str = ""
    reason: str = ""
    response: bytes | None = None
    sealed: bool = False
    abort_reason: str | None = None
    retry_delay_us: int | None = None


def classify(status_code: str, trailers: Mapping[str, str | bytes], *, parses: bool) -> Outcome:
    """What a status code with its trailers proves.

    Args:
        status_code: the gRPC status code by name, for example "OK".
        trailers: the trailing metadata; of repeated keys the last.
        parses: whether the response's bytes parse as the method's response type (only looked at with "OK").
    """
    if status_code == "OK":
        return Outcome.SUCCEEDED if parses else Outcome.UNKNOWN
    if trailers.get(EXECUTED_TRAILER) == "no":
        return Outcome.NOT_SENT
    if status_code in REJECTED_CODES:
        return Outcome.REJECTED_SEALED if trailers.get(SEALED_TRAILER) == "1" else Outcome.REJECTED
    if status_code in WIRING_CODES:
        return Outcome.WIRING_FAULT
    return Outcome.UNKNOWN


def heard(call: CallPlan, answer: Answer) -> Answer:
    """An action's answer as the step's own code sets read it: they add to the codes that are a clear no, or remove from
    them.
    """
    if answer.outcome in _READ_ALIKE or answer.status_code in ("OK", ""):
        return answer
    outcome = Outcome.UNKNOWN
    if answer.status_code in call.rejected_codes:
        sealed = answer.sealed or answer.outcome is Outcome.REJECTED_SEALED
        outcome = Outcome.REJECTED_SEALED if sealed else Outcome.REJECTED
    return answer if outcome is answer.outcome else replace(answer, outcome=outcome)


_READ_ALIKE = frozenset({Outcome.SUCCEEDED, Outcome.NOT_SENT, Outcome.WIRING_FAULT})
