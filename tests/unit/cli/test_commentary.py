"""What `amends dev` prints: one line a happening, texts of others escaped, what is said alike said once."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from amends.cli.commentary import Commentary
from amends_coordinator.bootstrap import happenings as told
from amends_coordinator.core.states import DeadLetterReason, Direction, IntentState, Outcome, SagaState

if TYPE_CHECKING:
    import pytest

FORGOT = told.CallEnded(
    saga_id="t-1",
    step="hold",
    direction=Direction.ACTION,
    method="a.B/Hold",
    state=IntentState.PENDING,
    outcome=Outcome.UNKNOWN,
    attempt=1,
    took_us=4_000,
    status_code="INTERNAL",
    said="returned \x1b[31mNone",
    in_doubt=True,
    again_in_us=50_000,
)
NO_PROOF = "no proof, because an attempt before ended unknown"
CAME = told.ParticipantCame(participant="theatre", address="127.0.0.1:1", services=("a.B",))


def test_who_was_here_before_is_told_after_the_first_line(capsys: pytest.CaptureFixture[str]) -> None:
    """The address is the first thing that a reader, or a program, looks for."""
    commentary = Commentary(ledger="kept")
    commentary.tell(CAME)
    commentary.ready("127.0.0.1:7070")
    assert capsys.readouterr().out.splitlines() == [
        "listening on 127.0.0.1:7070; kept; Ctrl-C ends it",
        "+ theatre  at 127.0.0.1:1 serves a.B",
    ]


def test_what_every_attempt_says_alike_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    """Until it says something else, or its saga has ended; and a refusal after doubt says that it proves nothing."""
    commentary = Commentary(ledger="kept")
    commentary.ready("127.0.0.1:7070")
    commentary.tell(FORGOT)
    commentary.tell(replace(FORGOT, attempt=2))
    commentary.tell(replace(FORGOT, attempt=3, outcome=Outcome.REJECTED, status_code="NOT_FOUND", said="no"))
    ended = told.SagaMoved(
        saga_id="t-1",
        state=SagaState.COMMITTED,
        took_us=9_000,
        unproven=True,
        failed_step=None,
        failure_reason="",
        failure_message="",
    )
    commentary.tell(ended)
    commentary.tell(FORGOT)
    _, *lines = capsys.readouterr().out.splitlines()
    first = "t-1  hold → Hold  unknown  4 ms  INTERNAL  returned \\x1b[31mNone  again in 50 ms"
    assert lines == [
        first,
        "t-1  hold → Hold  unknown  4 ms  attempt 2  as before  again in 50 ms",
        f"t-1  hold → Hold  rejected  4 ms  attempt 3  NOT_FOUND  no  {NO_PROOF}  again in 50 ms",
        "t-1  COMMITTED in 9 ms  unproven: it rests on an assumption",
        first,
    ]


def test_the_commands_that_repair_go_to_this_coordinator(capsys: pytest.CaptureFixture[str]) -> None:
    """Ready to be copied: with the address where it isn't the usual one."""
    letter = told.DeadLetterOpened(
        saga_id="t-1",
        step=None,
        direction=None,
        dead_letter_id="t-1/1",
        reason=DeadLetterReason.DRIVER_FAILED,
        said="",
    )
    commentary = Commentary(ledger="kept")
    commentary.ready("127.0.0.1:7071")
    commentary.tell(letter)
    _, *lines = capsys.readouterr().out.splitlines()
    assert lines == [
        "t-1  needs a person  the saga  DRIVER_FAILED",
        "    amends deadletter retry t-1/1 --reason 'mended' --coordinator 127.0.0.1:7071",
    ]
