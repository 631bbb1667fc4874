"""Draws a saga's timeline as bars: a line for each attempt, wait and dead letter, on one time axis.

A bar's shade is the direction of its call, its last column a letter that says how it ended if it did not succeed; the
words around it say both again, and colours only repeat them. What is shorter than a column is still one column wide.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

from google.protobuf.timestamp_pb2 import Timestamp
from rich.text import Text

from amends.cli.axis import Axis, axis
from amends.cli.formats import LONGEST_NAME, cut, duration, instant
from amends.cli.lanes import Kind, Lane, Mark, Span
from amends.cli.show import BACKWARD, BAD, BUSY, OUTCOME_STYLES, QUIET
from amends.cli.timeline import Change, Timeline

FEWEST_COLUMNS = 20
"""A bar has at least so many, whatever the names beside it need."""
MOST_CHANGES = 6
LOOKUP_STYLE = "magenta"


@dataclass(frozen=True, slots=True)
class Glyphs:
    """The characters that a drawing is made of."""

    spans: Mapping[Kind, str]
    arrows: Mapping[Kind, str]
    cut: str
    dots: str


DRAWN = Glyphs(
    spans={Kind.ACTION: "█", Kind.COMPENSATION: "▓", Kind.LOOKUP: "▒", Kind.WAIT: "·", Kind.DEAD_LETTER: "╌"},
    arrows={Kind.ACTION: "→", Kind.COMPENSATION: "←", Kind.LOOKUP: "?"},
    cut="┊",
    dots="…",
)
PLAIN = Glyphs(
    spans={Kind.ACTION: "=", Kind.COMPENSATION: "%", Kind.LOOKUP: "~", Kind.WAIT: ".", Kind.DEAD_LETTER: "-"},
    arrows={Kind.ACTION: ">", Kind.COMPENSATION: "<", Kind.LOOKUP: "?"},
    cut=":",
    dots="...",
)
SPAN_STYLES = {
    Kind.ACTION: BUSY,
    Kind.COMPENSATION: BACKWARD,
    Kind.LOOKUP: LOOKUP_STYLE,
    Kind.WAIT: QUIET,
    Kind.DEAD_LETTER: BAD,
}
LETTERS = {
    Mark.REJECTED: ("x", BAD),
    Mark.UNKNOWN: ("?", BACKWARD),
    Mark.NOT_SENT: ("o", QUIET),
    Mark.WIRING_FAULT: ("w", BAD),
    Mark.GOES_ON: (">", BUSY),
    Mark.DEAD_LETTER: ("!", BAD),
}
WORDS: Mapping[Kind | Mark, str] = {
    Kind.ACTION: "action",
    Kind.COMPENSATION: "compensation",
    Kind.LOOKUP: "lookup",
    Kind.WAIT: "waiting",
    Mark.REJECTED: "rejected",
    Mark.UNKNOWN: "unknown",
    Mark.NOT_SENT: "not sent",
    Mark.WIRING_FAULT: "wiring fault",
    Mark.GOES_ON: "goes on",
    Mark.DEAD_LETTER: "dead letter",
}


@dataclass(frozen=True, slots=True)
class Drawing:
    """The lines of a timeline."""

    axis: Text
    lanes: tuple[Text, ...]
    foot: tuple[Text, ...]
    """Which node made the calls, where it changed, and what the characters mean."""

    def lines(self, most: int | None = None) -> list[Text]:
        """All lines, or as many as there is room for: then the oldest lanes are left out, and their number is told."""
        room = None if most is None else max(1, most - 2 - len(self.foot))
        if room is None or len(self.lanes) <= room + 1:
            return [self.axis, *self.lanes, *self.foot]
        above = Text(f"{len(self.lanes) - room} lines above", QUIET)
        return [self.axis, above, *self.lanes[-room:], *self.foot]


def draw(shown: Timeline, width: int, glyphs: Glyphs = DRAWN) -> Drawing:
    """The timeline in so many columns, more if the names alone need more."""
    return _Pen(shown, width, glyphs).drawing()


class _Pen:
    """Draws one timeline."""

    def __init__(self, shown: Timeline, width: int, glyphs: Glyphs) -> None:
        self._shown, self._glyphs = shown, glyphs
        steps = max((len(_name(lane)) for lane in shown.lanes), default=0)
        self._step = min(steps, width // 4)
        self._number = max((len(lane.number) for lane in shown.lanes), default=0)
        self._took = max((len(_took(lane)) for lane in shown.lanes), default=0)
        note = max((len(lane.note) for lane in shown.lanes), default=0)
        self._before = self._step + self._number + 5  # an arrow, and blanks
        self._width = max(width, self._before + FEWEST_COLUMNS + self._took + note + 4)
        self._axis: Axis = axis(shown.instants(), self._width - self._before - self._took - note - 4)
        self._cuts = self._axis.cut_columns()

    def drawing(self) -> Drawing:
        lanes = tuple(self._lane(lane) for lane in self._shown.lanes)
        return Drawing(self._axis_line(), lanes, (*self._nodes(), *self._legend()))

    def _axis_line(self) -> Text:
        """The ticks for which there is room, and the end, which there always is."""
        width = self._axis.width
        last = f"{duration(self._shown.end - self._shown.begin)}|"
        line = ""
        for tick in self._axis.ticks():
            label = f"|{tick.label}"
            is_free = not line or len(line) < tick.column
            if is_free and tick.column + len(label) < width - len(last):
                line = line.ljust(tick.column) + label
        return Text(" " * self._before + line + last.rjust(width - len(line)), QUIET)

    def _lane(self, lane: Lane) -> Text:
        step, dots = _name(lane), self._glyphs.dots
        if len(step) > self._step:
            step = step[: self._step - len(dots)] + dots
        line = Text().append(step.ljust(self._step), "bold")
        line.append(f" {self._glyphs.arrows.get(lane.kind, ' ')} ", SPAN_STYLES[lane.kind])
        line.append(f"{lane.number.ljust(self._number)}  ")
        for style, cells in groupby(self._cells(lane.spans), key=itemgetter(1)):
            line.append("".join(glyph for glyph, _ in cells), style)
        line.append(f"  {_took(lane).rjust(self._took)}  ")
        return line.append(cut(lane.note, LONGEST_NAME), _note_style(lane))

    def _cells(self, spans: Iterable[Span]) -> list[tuple[str, str]]:
        """The columns of a lane, each with its character and colour."""
        cells = [(" ", "")] * self._axis.width
        for span in spans:
            first, last = self._columns(span)
            for column in range(first, last + 1):
                cells[column] = (self._glyphs.spans[span.kind], SPAN_STYLES[span.kind])
        for column in self._cuts:
            cells[column] = (self._glyphs.cut, cells[column][1] or QUIET)
        for span in spans:
            if span.mark:
                first, last = self._columns(span)
                cells[first if span.mark is Mark.DEAD_LETTER else last] = LETTERS[span.mark]
        return cells

    def _columns(self, span: Span) -> tuple[int, int]:
        """The first and the last column of a span."""
        first, after = self._axis.column(span.begin), self._axis.column(span.end)
        is_at_the_edge = span.end >= self._shown.end and after > first
        return first, max(first, after if is_at_the_edge else after - 1)

    def _nodes(self) -> Iterator[Text]:
        """Which node made the calls from when on, if there was more than one; as many lines as names need."""
        changes = self._shown.changes
        if len(changes) < 2:
            return
        left_out = len(changes) - MOST_CHANGES
        if left_out > 0:
            changes = (*changes[: MOST_CHANGES // 2], *changes[-MOST_CHANGES // 2 :])
        title, line = "node", ""
        for change in changes:
            flag, column = self._flag(change)
            if line and len(line) >= column:
                yield Text(title.ljust(self._before) + line, QUIET)
                title = line = ""
            line = line.ljust(column) + flag
        yield Text(title.ljust(self._before) + line, QUIET)
        if left_out > 0:
            yield Text(" " * self._before + f"and {left_out} more between", QUIET)

    def _flag(self, change: Change) -> tuple[str, int]:
        """A node's name, and the column at which to write it: it points at the moment from its left or its right."""
        name, column = cut(change.node, 36), self._axis.column(change.begin)
        if self._before + column + 1 + len(name) > self._width:
            return f"{name}|", max(0, column - len(name))
        return f"|{name}", column

    def _legend(self) -> Iterator[Text]:
        """What the characters mean that are drawn, in lines that are not too long."""
        spans = [span for lane in self._shown.lanes for span in lane.spans]
        kinds, marks = {span.kind for span in spans}, {span.mark for span in spans}
        items = [
            f"{self._glyphs.spans[kind]} {WORDS[kind]}" for kind in self._glyphs.spans if kind in kinds & set(WORDS)
        ]
        items += [f"{letter} {WORDS[mark]}" for mark, (letter, _) in LETTERS.items() if mark in marks]
        items.append(f"0 at {instant(Timestamp(seconds=self._shown.begin // 1_000_000))}")
        if self._axis.cuts:
            items.append(f"{self._glyphs.cut} shortened")
        line = ""
        for item in items:
            if line and len(line) + 2 + len(item) > self._width:
                yield Text(line, QUIET)
                line = ""
            line += f"  {item}" if line else item
        yield Text(line, QUIET)


def _name(lane: Lane) -> str:
    return cut(lane.step, LONGEST_NAME) or "(saga)"


def _took(lane: Lane) -> str:
    return "" if lane.took_us is None else duration(lane.took_us)


def _note_style(lane: Lane) -> str:
    if lane.mark is Mark.DEAD_LETTER:
        return BAD
    return OUTCOME_STYLES.get(lane.note, QUIET if lane.number == "!" else BUSY)
