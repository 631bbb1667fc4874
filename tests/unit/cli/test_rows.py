"""How far a saga is, in a list on a terminal and in a pipe."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from amends.cli.rows import progress, saga_line, saga_rows
from amends.v1.saga_pb2 import Saga
from tests.docs.pages import CHECKOUT
from tests.unit.cli.sagas import at, committed_saga, stuck_saga

PIPE = Console(file=io.StringIO(), force_terminal=False)


def terminal(encoding: str) -> Console:
    """A terminal that knows the characters of this encoding."""
    return Console(file=io.TextIOWrapper(io.BytesIO(), encoding=encoding), force_terminal=True)


@pytest.mark.parametrize(
    ("saga", "bar", "words"),
    [
        (Saga(state=Saga.STATE_RUNNING, step_count=5, succeeded_step_count=2), "████░░░░░░ 2/5", "2/5"),
        (Saga(state=Saga.STATE_RUNNING, step_count=3), "░░░░░░░░░░ 0/3", "0/3"),
        (Saga(state=Saga.STATE_RUNNING, step_count=2, succeeded_step_count=2), "██████████ 2/2", "2/2"),
        (Saga(state=Saga.STATE_RUNNING, step_count=2, succeeded_step_count=3), "██████████ 3/2", "3/2"),
        (
            Saga(state=Saga.STATE_COMPENSATING, step_count=5, succeeded_step_count=4, compensations_owed=1),
            "███████░░░ 1 to undo",
            "1 to undo",
        ),
        (
            Saga(state=Saga.STATE_COMPENSATION_FAILED, step_count=5, succeeded_step_count=1, compensations_owed=2),
            "░░░░░░░░░░ 2 to undo",
            "2 to undo",
        ),
        (Saga(state=Saga.STATE_COMPENSATING, step_count=5), "██████████ 0 to undo", "0 to undo"),
        (Saga(state=Saga.STATE_RUNNING), "-", "-"),
        (Saga(state=Saga.STATE_COMMITTED, step_count=2, succeeded_step_count=2), "-", "-"),
        (Saga(state=Saga.STATE_COMPENSATED, step_count=2, succeeded_step_count=1), "-", "-"),
        (Saga(state=99, step_count=2), "-", "-"),  # type: ignore[arg-type]  # of a newer coordinator
    ],
)
def test_progress(saga: Saga, bar: str, words: str) -> None:
    """Forward by the steps that succeeded, backward by what is still to be undone; a pipe gets the words."""
    assert progress(saga, terminal("utf-8")).plain == bar
    assert progress(saga, PIPE).plain == words
    assert progress(saga, terminal("ascii")).plain == bar.replace("█", "#").replace("░", ".")


def test_the_list_in_the_docs_is_what_is_printed() -> None:
    """docs/operating.md shows what a terminal shows."""
    running = Saga(saga_id="order-1044", definition_name="order", step_count=5, succeeded_step_count=2)
    running.state = Saga.STATE_RUNNING
    running.create_time.CopyFrom(at(0))
    undoing = stuck_saga()
    undoing.succeeded_step_count, undoing.compensations_owed = 3, 1
    lines = [line.plain for line in saga_rows([running, undoing, committed_saga()], terminal("utf-8"))]
    assert "\n".join(lines) in (CHECKOUT / "docs" / "operating.md").read_text("utf-8")


@pytest.mark.parametrize(
    ("width", "titles"),
    [
        (200, "SAGA DEFINITION STATE PROGRESS BEGUN TOOK"),
        (120, "SAGA DEFINITION STATE PROGRESS TOOK"),
        (100, "SAGA STATE PROGRESS"),
        (80, "SAGA STATE"),
        (20, "SAGA STATE"),
    ],
)
def test_what_needs_a_person_is_seen_in_a_narrow_terminal(width: int, titles: str) -> None:
    """Where a line is cut off, its end is what an operator looks for: columns that tell less go first."""
    saga = stuck_saga()
    saga.saga_id, saga.compensations_owed = "01a2306b-c913-72fa-b058-1979f1748dc0", 1
    saga.state = Saga.STATE_COMPENSATION_FAILED
    head, line = (each.plain for each in saga_rows([saga], terminal("utf-8"), width=width))
    assert " ".join(head.split()) == titles
    assert line.endswith("attention required")
    assert len(line) <= max(width, 77)


def test_a_line_for_itself() -> None:
    """What isn't there takes no place."""
    assert saga_line(stuck_saga(), PIPE).plain == (
        "order-1043  order  COMPENSATING  2 to undo  2026-11-30 00:53:20Z  attention required"
    )
    assert saga_line(committed_saga(), PIPE).plain == "order-1042  order  COMMITTED  2026-11-30 00:53:20Z  1.42 s"
