"""Draws docs/saga-states.md from the transition tables of the core, or checks that the page is what they give."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from amends_coordinator.core.states import IntentState, SagaState
from amends_coordinator.core.transitions import INTENT_TRANSITIONS, SAGA_TRANSITIONS

CHECKOUT = Path(__file__).resolve().parent.parent
PAGE = CHECKOUT / "docs" / "saga-states.md"

State = TypeVar("State", bound=StrEnum)
Move = TypeVar("Move", bound=StrEnum)

OPENING = """\
# States of a saga and of its intents

Drawn by `tools/draw_states.py` from the tables in `coordinator/amends_coordinator/core/transitions.py`; a test fails
when this page is stale. What is not in a table is illegal: the core refuses it. [semantics.md](semantics.md) says what
the states mean.
"""

SAGA_TEXT = """
## A saga

`COMMITTED` and `COMPENSATED` are ends and never change. `COMPENSATION_FAILED` waits for a person{exits}.

"""

INTENT_TEXT = """
## An intent

One row of the ledger: a call of one step in one direction. It stays `PENDING` over all its attempts, until it is known
what became of it, or that only a person can find out. An action that was `REJECTED` is never called again; a lookup is,
whenever there is something to ask.

"""

MEANINGS: Mapping[IntentState, str] = {
    IntentState.PENDING: "an attempt may be on its way, or the next one waits for its time",
    IntentState.SUCCEEDED: "the participant said that it is done",
    IntentState.REJECTED: "it did not happen, or counts as that; of a lookup: it found nothing",
    IntentState.UNKNOWN: "nobody knows: its lookup is asked, or it counts as may-have-happened and is undone; of a"
    " lookup: it proved nothing",
    IntentState.NOTHING_TO_UNDO: "a compensation whose action turned out never to have happened",
    IntentState.PARKED: "a person has to decide: a dead letter says why",
    IntentState.RESOLVED: "a named person said what became of it",
    IntentState.DROPPED: "not wanted any more, and nothing is owed: it was never sent, or it only reads",
}


def page() -> str:
    """The whole page."""
    saga = diagram(SAGA_TRANSITIONS, begin=SagaState.RUNNING)
    intent = diagram(INTENT_TRANSITIONS, begin=IntentState.PENDING)
    unused = sorted(set(IntentState) - states_of(INTENT_TRANSITIONS))
    note = f"\nNothing moves to {', '.join(f'`{state}`' for state in unused)} in this release.\n" if unused else ""
    stays = all(state is not SagaState.COMPENSATION_FAILED for state, _ in SAGA_TRANSITIONS)
    saga_text = SAGA_TEXT.format(exits="; in this release nothing leads out of it" if stays else "")
    return f"{OPENING}{saga_text}{saga}{INTENT_TEXT}{meanings()}{intent}{note}"


def meanings() -> str:
    """A table of what the states of an intent mean."""
    rows = (f"| `{state}` | {MEANINGS[state]} |\n" for state in IntentState)
    return "| state | means |\n| --- | --- |\n" + "".join(rows) + "\n"


def diagram(table: Mapping[tuple[State, Move], State], *, begin: State) -> str:
    """A table of transitions as a mermaid diagram, in the table's order."""
    lines = [f"[*] --> {begin}"]
    lines += [f"{state} --> {target}: {words(move)}" for (state, move), target in table.items()]
    lines += [f"{state} --> [*]" for state in sorted(states_of(table)) if isinstance(state, SagaState) and state.ended]
    return "```mermaid\nstateDiagram-v2\n" + "".join(f"    {line}\n" for line in lines) + "```\n"


def states_of(table: Mapping[tuple[State, Move], State]) -> set[State]:
    """Every state that a table knows."""
    return {*(state for state, _ in table), *table.values()}


def words(move: StrEnum) -> str:
    """Why a state changes, without the characters that end a label of mermaid."""
    return move.value.replace(":", ",").replace(";", ",")


def main(arguments: Iterable[str] | None = None) -> int:
    """Write the page, or with --check compare; 0 if all is well."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; fail if the committed page is stale")
    check = bool(parser.parse_args(None if arguments is None else [*arguments]).check)
    if not check:
        PAGE.write_text(page(), "utf-8")
        return 0
    if not PAGE.exists() or PAGE.read_text("utf-8") != page():
        print(f"{PAGE.relative_to(CHECKOUT)} is stale: run tools/draw_states.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
