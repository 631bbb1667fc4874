"""Draws sagas in a list: a line for each, with a bar while it goes on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich.console import Console
from rich.text import Text

from amends.cli.formats import LONGEST_NAME, cut, instant
from amends.cli.show import BACKWARD, BAD, BUSY, QUIET, age, columns, saga_state, state_text
from amends.v1.saga_pb2 import Saga

TITLES = ("SAGA", "DEFINITION", "STATE", "PROGRESS", "BEGUN", "TOOK", "")
LEAST_NEEDED = ("BEGUN", "TOOK", "DEFINITION", "PROGRESS")
"""What a narrow terminal does without, in this order; the saga, its state and what is the matter with it stay."""
BAR_CELLS = 10
BLOCKS, PLAIN_BLOCKS = ("█", "░"), ("#", ".")


def saga_rows(
    sagas: Iterable[Saga], output: Console, *, shows_progress_time: bool = False, width: int | None = None
) -> Iterator[Text]:
    """The lines of a list, under their titles.

    Arguments:
        sagas: what to list.
        output: where it will be printed: bars are for terminals, and use no character that it doesn't know.
        shows_progress_time: whether to say since when each hasn't got on.
        width: how many cells a line has; None: as many as it takes.
    """
    titles = list(TITLES)
    rows = [[*_cells(saga, output), _note(saga, shows_progress_time=shows_progress_time)] for saga in sagas]
    for title in LEAST_NEEDED:
        if width is None or _width([[Text(each) for each in titles], *rows]) <= width:
            break
        spare = titles.index(title)
        del titles[spare]
        for row in rows:
            del row[spare]
    return columns(titles, rows)


def _width(table: Sequence[Sequence[Text]]) -> int:
    """How many cells its longest line has; the gaps between columns are of two."""
    widths: list[int] = [max(cell.cell_len for cell in column) for column in zip(*table, strict=True)]
    return sum(widths) + 2 * (len(widths) - 1)


def saga_line(saga: Saga, output: Console) -> Text:
    """A saga's line for itself, where no others stand above and below it."""
    cells = [*_cells(saga, output), _note(saga, shows_progress_time=False)]
    return Text("  ").join(cell for cell in cells if cell.plain not in ("", "-"))


def _cells(saga: Saga, output: Console) -> list[Text]:
    """All of a saga's line but its note."""
    return [
        Text(cut(saga.saga_id), "bold"),
        Text(cut(saga.definition_name, LONGEST_NAME) or "(client-driven)"),
        state_text(saga_state(saga)),
        progress(saga, output),
        Text(instant(saga.create_time) if saga.HasField("create_time") else ""),
        Text(age(saga).removeprefix("in ") if saga.HasField("end_time") else "-"),
    ]


def progress(saga: Saga, output: Console) -> Text:
    """How far a saga is: forward by its steps, backward by what is still to be undone; nothing once it has ended."""
    if saga.state == Saga.STATE_RUNNING and saga.step_count:
        done, total, style = saga.succeeded_step_count, saga.step_count, BUSY
        said = f"{done}/{total}"
    elif saga.state in (Saga.STATE_COMPENSATING, Saga.STATE_COMPENSATION_FAILED):
        owed, style = saga.compensations_owed, BACKWARD
        total = max(saga.succeeded_step_count, owed)
        done = total - owed
        said = f"{owed} to undo"
    else:
        return Text("-", QUIET)
    if not output.is_terminal:
        return Text(said)
    full, empty = PLAIN_BLOCKS if output.options.ascii_only else BLOCKS
    filled = BAR_CELLS * min(done, total) // total if total else BAR_CELLS
    return Text.assemble((full * filled, style), (empty * (BAR_CELLS - filled), QUIET), f" {said}")


def _note(saga: Saga, *, shows_progress_time: bool) -> Text:
    notes = [
        Text("attention required", BAD) if saga.attention_required else Text(),
        Text("unproven", BACKWARD) if saga.unproven else Text(),
        Text("purged", QUIET) if saga.purged else Text(),
        Text(f"no progress since {instant(saga.progress_time)}", BACKWARD) if shows_progress_time else Text(),
    ]
    return Text(", ").join(note for note in notes if note)
