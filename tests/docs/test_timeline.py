"""What docs/operating.md shows of a saga's bars is what is drawn."""

from __future__ import annotations

import re

from amends.cli.bars import draw
from amends.cli.formats import micros
from amends.cli.picture import WIDTH_IN_A_PIPE
from amends.cli.timeline import timeline
from tests.docs.pages import CHECKOUT
from tests.unit.cli.sagas import at, stuck_saga

SHOWN = re.compile(r"^<!-- bars: .*-->\n```text\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_bars_are_what_is_drawn() -> None:
    """The saga of the page, 42.5 s after it began, as a pipe gets it."""
    found = SHOWN.search((CHECKOUT / "docs" / "operating.md").read_text("utf-8"))
    assert found
    drawing = draw(timeline(stuck_saga(), micros(at(42_500))), WIDTH_IN_A_PIPE)
    assert found["text"] == "".join(f"{line.plain.rstrip()}\n" for line in drawing.lines())
