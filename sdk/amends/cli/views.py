"""What is shown of sagas that are followed: drawn anew on a terminal, a line for each change in a pipe."""

from __future__ import annotations

from types import TracebackType
from typing import Self

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from amends.cli.news import news
from amends.cli.picture import SagaPicture
from amends.cli.rows import saga_line, saga_rows
from amends.cli.show import BACKWARD, QUIET
from amends.v1.saga_pb2 import Saga

HINT = Text("Ctrl-C ends this", QUIET)
LOST = "the coordinator doesn't answer; reconnecting ..."
LINES_AROUND = 3
"""What a drawn list has above and below its sagas."""
LINES_AROUND_A_SAGA = 1
"""The hint."""


class Screen:
    """A terminal's last lines, drawn anew each time; at the end the last drawing stays.

    Arguments:
        output: the terminal.
        grows: whether what is drawn changes while nothing happens, so that it is drawn anew each second.
    """

    def __init__(self, output: Console, *, grows: bool = False) -> None:
        self._output = output
        self._live = Live(console=output, auto_refresh=grows, refresh_per_second=1, transient=True)
        self._body: RenderableType | None = None
        self._last: RenderableType | None = None

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._live.stop()
        if self._last is not None:
            self._output.print(self._last)

    def lost(self) -> None:
        """Say that the coordinator doesn't answer any more; whatever is drawn next says that it does again."""
        self._draw(Text(LOST, BACKWARD))

    def draw(self, body: RenderableType, *, last: RenderableType | None = None) -> None:
        """Draw this in place of what was drawn before; `last` is what stays at the end if nothing else is drawn."""
        self._body, self._last = body, body if last is None else last
        self._draw(HINT)

    def _draw(self, hint: Text) -> None:
        self._live.update(Group(self._body or Text(), hint), refresh=True)


class SagaScreen(Screen):
    """One saga with all its rows, on a terminal; what goes on in it grows."""

    def __init__(self, output: Console) -> None:
        super().__init__(output, grows=True)

    def show(self, shown: Saga) -> None:
        """Show how it is now."""
        self.draw(SagaPicture(shown, lines_around=LINES_AROUND_A_SAGA), last=SagaPicture(shown))


class ListScreen(Screen):
    """Many sagas, on a terminal."""

    def __init__(self, output: Console, *, shows_progress_time: bool) -> None:
        super().__init__(output)
        self._shows_progress_time = shows_progress_time

    def show(self, shown: list[Saga]) -> None:
        """Show how they are now."""
        room = self._output.width
        lines = list(saga_rows(shown, self._output, shows_progress_time=self._shows_progress_time, width=room))
        for line in lines:
            line.no_wrap, line.overflow = True, "ellipsis"  # a wrapped line would take the place of a saga
        self.draw(Group(*lines) if shown else Text("no sagas", QUIET))


class Lines:
    """Lines in a pipe or a file."""

    def __init__(self, output: Console) -> None:
        self.output = output
        self.is_lost = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def lost(self) -> None:
        """Say that the coordinator doesn't answer any more, once for each outage, and not among the lines."""
        if not self.is_lost:
            typer.echo(LOST, err=True)
        self.is_lost = True


class NewsLines(Lines):
    """What is new about one saga, line by line."""

    def __init__(self, output: Console) -> None:
        super().__init__(output)
        self._before: Saga | None = None

    def show(self, shown: Saga) -> None:
        """Show how it is now."""
        self.is_lost = False
        for line in news(self._before, shown):
            self.output.print(line, soft_wrap=True)
        self._before = shown


class ListLines(Lines):
    """A line for each saga that is new in the list or has changed, oldest first."""

    def __init__(self, output: Console) -> None:
        super().__init__(output)
        self._known: dict[str, int] = {}

    def show(self, shown: list[Saga]) -> None:
        """Show how they are now."""
        self.is_lost = False
        for saga in reversed(shown):
            if self._known.get(saga.saga_id) != saga.write_count:
                self.output.print(saga_line(saga, self.output), soft_wrap=True)
        self._known = {saga.saga_id: saga.write_count for saga in shown}
