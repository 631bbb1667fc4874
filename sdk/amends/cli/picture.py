"""A saga as people look at it: its tree, and below it its times as bars, as wide as there is room for."""

from __future__ import annotations

import time

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from amends.cli.bars import DRAWN, PLAIN, Drawing, draw
from amends.cli.show import saga_tree
from amends.cli.timeline import timeline
from amends.v1.saga_pb2 import Saga

WIDEST, WIDTH_IN_A_PIPE = 200, 100


class SagaPicture:
    """The whole saga; what goes on in it reaches to the moment at which it is printed.

    Arguments:
        saga: with its rows.
        lines_around: how many lines of the terminal are taken already. Where the rest is not enough the tree is left
            out, but for its head, and then the oldest bars. None: as many lines as it takes.
    """

    def __init__(self, saga: Saga, *, lines_around: int | None = None) -> None:
        self._saga, self._lines_around = saga, lines_around

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        tree = saga_tree(self._saga)
        bars = _bars(self._saga, console)
        if bars is None:
            yield tree
            return
        room = None if self._lines_around is None else console.height - self._lines_around
        lines = bars.lines()
        if room is None or len(console.render_lines(tree, options, pad=False)) + 1 + len(lines) <= room:
            yield tree
            yield Text()
        else:
            yield tree.label
            lines = bars.lines(room - 1)
        for line in lines:
            line.no_wrap, line.overflow = True, "ellipsis" if console.is_terminal else "ignore"
            yield line


def _bars(saga: Saga, output: Console) -> Drawing | None:
    """None where nothing is known but how it stands: retention has emptied the saga, or it has no rows yet."""
    if not saga.intents:
        return None
    width = min(output.width, WIDEST) if output.is_terminal else WIDTH_IN_A_PIPE
    glyphs = PLAIN if output.options.ascii_only else DRAWN
    return draw(timeline(saga, time.time_ns() // 1_000), width, glyphs)
