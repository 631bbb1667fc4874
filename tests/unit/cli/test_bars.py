"""A saga's times as bars: word for word, in every width, without colours and without anything but ASCII."""

from __future__ import annotations

import re

import pytest
from rich.text import Text

from amends.cli.bars import DRAWN, PLAIN, Drawing, Glyphs, draw
from amends.cli.formats import micros
from amends.cli.timeline import timeline
from amends.v1.saga_pb2 import (
    DIRECTION_ACTION,
    OUTCOME_NOT_SENT,
    OUTCOME_REJECTED_SEALED,
    OUTCOME_SUCCEEDED,
    OUTCOME_UNSPECIFIED,
    OUTCOME_WIRING_FAULT,
    DeadLetter,
    Intent,
    Saga,
)
from tests.unit.cli.sagas import at, attempt, committed_saga, killed_saga, long_saga, stuck_saga

COMMITTED = """\
                |0                |500 ms            |1.00 s  1.42 s|
reserve   → #1  █                                                        9 ms  succeeded
authorize → #1  o                                                        0 ms  not sent
authorize → #2  ·····█████████████████████████████████████?            1.00 s  unknown
authorize → #3                                             ·········█   12 ms  succeeded
█ action  · waiting  ? unknown  o not sent  0 at 2026-11-30 00:53:20Z
"""

STUCK = """\
                   |0                       42.50 s|
ship      → #1     x            ┊                        4 ms  rejected
authorize ← #1        ?         ┊                       50 ms  unknown
authorize ← #2         ···?     ┊                       50 ms  unknown
authorize ← #3-38         ······┊·····                36.95 s  36 attempts
authorize ← #39                 ┊     ?                 50 ms  unknown
authorize ← #40                 ┊     ····?             50 ms  unknown
authorize ← !                   ┊         !╌╌╌╌╌╌╌╌╌   2.40 s  open BUDGET_SPENT
reserve   ← #1                  ┊             ▓▓▓▓▓>   1.50 s  goes on
reserve   ← #2                  ┊                              next 00:54:05Z
█ action  ▓ compensation  · waiting  x rejected  ? unknown  > goes on
! dead letter  0 at 2026-11-30 00:53:20Z  ┊ shortened
"""

KILLED = """\
              |0                         |1.10 s      1.20 s|
reserve > #1  ====           :                                  20 ms  succeeded
pay     > #1      ===========:==========?                      1.08 s  unknown
pay     ? #1                 :           ~~~~~~                 30 ms  succeeded
pay     < #1                 :                                         dropped
reserve < #1                 :                   %%%%%%%%%%%%   60 ms  succeeded
node          |01890a5d-ac96-1           |01890a5d-ac96-2
= action  % compensation  ~ lookup  ? unknown  0 at 2026-11-30 00:53:20Z
: shortened
"""


def drawn(saga: Saga, width: int = 80, now_ms: int = 0, glyphs: Glyphs = DRAWN) -> Drawing:
    """The saga's bars as they are that many milliseconds after it began."""
    return draw(timeline(saga, micros(at(now_ms))), width, glyphs)


def plain(lines: list[Text]) -> str:
    """The lines without colours."""
    return "".join(f"{line.plain.rstrip()}\n" for line in lines)


def with_calls(*calls: Intent) -> Saga:
    """A saga that goes on, with these rows."""
    return Saga(saga_id="s", state=Saga.STATE_RUNNING, create_time=at(0), intents=calls)


@pytest.mark.parametrize(
    ("saga", "width", "now_ms", "glyphs", "expected"),
    [
        (committed_saga(), 88, 99_000, DRAWN, COMMITTED),
        (stuck_saga(), 80, 42_500, DRAWN, STUCK),
        (killed_saga(), 80, 99_000, PLAIN, KILLED),
    ],
    ids=["committed", "stuck", "killed"],
)
def test_plain_rendering(saga: Saga, width: int, now_ms: int, glyphs: Glyphs, expected: str) -> None:
    """Direction, outcome, waits, nodes and dead letters are all there without a colour; what ended doesn't grow."""
    assert plain(drawn(saga, width, now_ms, glyphs).lines()) == expected


@pytest.mark.parametrize("width", [*range(80, 201, 15), 200])
@pytest.mark.parametrize("saga", [committed_saga(), stuck_saga(), killed_saga(), long_saga(), long_saga(gap_ms=90_000)])
def test_no_line_is_wider_than_the_terminal(saga: Saga, width: int) -> None:
    """From 80 to 200 columns everything fits, and the width is used."""
    lines = drawn(saga, width, now_ms=60_000).lines()
    assert max(line.cell_len for line in lines) <= width
    assert lines[0].cell_len > width / 2


def test_direction_and_outcome_have_colours() -> None:
    """The bar's colour is its direction's, its end's the outcome's; they repeat the shade, the letter and the words."""
    lanes = drawn(stuck_saga(), now_ms=42_500).lanes
    styles = [{line.plain[span.start : span.end]: span.style for span in line.spans} for line in lanes]
    assert (styles[0]["x"], styles[0]["rejected"], styles[0][" → "]) == ("bold red", "bold red", "cyan")
    assert (styles[1]["?"], styles[1][" ← "]) == ("yellow", "yellow")
    assert styles[6]["!╌╌╌╌╌╌╌╌╌"] == styles[6]["open BUDGET_SPENT"] == "bold red"
    assert (styles[7]["▓▓▓▓▓"], styles[7][">"]) == ("yellow", "cyan")
    assert drawn(killed_saga()).lanes[2].plain.count("▒") == 6


def test_hundreds_of_attempts_take_few_lines() -> None:
    """140 attempts over seven hours: the first, the last and those between them, whose calls are still to be seen."""
    shown = drawn(long_saga(), now_ms=7 * 3_600_000 + 3_000)
    assert [re.split(r" {2,}", line.plain)[0].rpartition(" ")[2] for line in shown.lanes] == [
        "#1",
        "#1",
        "#2",
        "#3-137",
        "#138",
        "#139",
        "#140",
        "#141",
    ]
    assert shown.lanes[3].plain.endswith("7 h 0 min  135 attempts")
    assert shown.lanes[3].plain.count("?") > 5
    assert shown.lanes[-1].plain.endswith("next 07:53:24Z")
    assert "and 15 more between" in plain(shown.lines())


def test_what_goes_on_grows_and_what_ended_does_not() -> None:
    """An open call reaches to the present; a clock that is behind the coordinator's draws nothing backwards."""
    assert plain(drawn(killed_saga(), now_ms=0).lines()) == plain(drawn(killed_saga(), now_ms=10**9).lines())
    running = with_calls(
        Intent(step="a", direction=DIRECTION_ACTION, attempts=[attempt(1, 10, 990, "OK", OUTCOME_SUCCEEDED)]),
        Intent(step="b", direction=DIRECTION_ACTION, attempts=[attempt(1, 1_000, None, "", OUTCOME_UNSPECIFIED)]),
    )
    early, late = drawn(running, now_ms=1_500).lanes[1].plain, drawn(running, now_ms=4_000).lanes[1].plain
    assert early.count("█") < late.count("█")
    assert "3.00 s  goes on" in late
    assert "0 ms  goes on" in drawn(running, now_ms=-50_000).lanes[1].plain


def test_a_call_that_waits_before_its_first_attempt() -> None:
    """A row without an attempt says since when it waits; one that waits for nothing says how it stands."""
    waits = Intent(step="a", direction=DIRECTION_ACTION, state=Intent.STATE_PENDING, create_time=at(500))
    parked = Intent(step="b", direction=DIRECTION_ACTION, state=Intent.STATE_PARKED)
    lanes = drawn(with_calls(waits, parked), now_ms=1_000).lanes
    assert lanes[0].plain.endswith("·>  500 ms  pending")
    done = attempt(1, 500, 10, "OK", OUTCOME_SUCCEEDED)
    at_once = Intent(step="a", direction=DIRECTION_ACTION, create_time=at(500), attempts=[done])
    assert "waiting" not in plain(drawn(with_calls(at_once)).lines())
    assert lanes[1].plain.split() == ["b", "→", "#1", "parked"]
    waits.next_attempt_time.CopyFrom(at(2 * 86_400_000))
    assert drawn(with_calls(waits), now_ms=1_000).lanes[0].plain.endswith("next 2026-12-02 00:53:20Z")


def test_every_end_has_a_letter() -> None:
    """What did not succeed is told apart by letters alone."""
    outcomes = (OUTCOME_REJECTED_SEALED, OUTCOME_NOT_SENT, OUTCOME_WIRING_FAULT)
    tries = [attempt(number, 100 * number, 50, "", outcome) for number, outcome in enumerate(outcomes, 1)]
    shown = drawn(with_calls(Intent(step="a", direction=DIRECTION_ACTION, attempts=tries)), now_ms=400)
    assert [re.findall(r"█([xow]) ", line.plain) for line in shown.lanes] == [["x"], ["o"], ["w"]]
    assert "x rejected  o not sent  w wiring fault" in shown.foot[0].plain


def test_dead_letters_of_the_saga_and_closed_ones() -> None:
    """One that is about the saga as a whole has a line as well, and one that is closed ends."""
    saga = with_calls(
        Intent(step="a", direction=DIRECTION_ACTION, attempts=[attempt(1, 0, 90, "OK", OUTCOME_SUCCEEDED)])
    )
    saga.dead_letters.add(reason=DeadLetter.REASON_TIMED_OUT, open_time=at(400), close_time=at(700))
    (line,) = [line.plain for line in drawn(saga, now_ms=1_000).lanes if "TIMED_OUT" in line.plain]
    assert line.startswith("(saga)   ! ")
    assert re.search(r" !╌+ +300 ms  closed TIMED_OUT$", line)


def test_a_dead_letter_that_outlives_its_saga_goes_on() -> None:
    """A report that came late waits for a person, although the saga has ended."""
    saga = killed_saga()
    saga.dead_letters.add(step="pay", direction=DIRECTION_ACTION, reason=DeadLetter.REASON_LATE_REPORT)
    saga.dead_letters[0].open_time.CopyFrom(at(1_300))
    (line,) = [line.plain for line in drawn(saga, now_ms=9_300).lanes if "LATE_REPORT" in line.plain]
    assert re.search(r" !╌+[╌┊]+ +8\.00 s  open LATE_REPORT$", line)


def test_attempts_of_which_nothing_is_kept() -> None:
    """They are counted on one line, and no attempt is made up."""
    intent = Intent(step="a", direction=DIRECTION_ACTION, state=Intent.STATE_SUCCEEDED, attempts_left_out={"": 2})
    (line,) = drawn(with_calls(intent), now_ms=1_000).lanes
    assert (line.plain.startswith("a → #1-2  "), line.plain.endswith("2 attempts")) == (True, True)


def test_the_name_of_a_node_that_came_late_stands_before_its_time() -> None:
    """A name that would not fit behind the moment ends at it."""
    saga = killed_saga()
    saga.intents[-1].attempts[0].node = "n" * 36
    (line,) = [line.plain for line in drawn(saga).foot if "nnn" in line.plain]
    assert line.endswith(f"{'n' * 36}|")
    assert len(line) <= 80


def test_long_names_are_shortened_and_hostile_ones_are_printed() -> None:
    """The bars keep their room; a node's name can't draw."""
    saga = killed_saga()
    saga.intents[0].step = "reserve_the_seat_at_the_very_front_of_the_theatre"
    saga.intents[0].attempts[0].node = "\x1b[2J"
    saga.intents[1].step = "\x1b[31mpay"
    text = plain(drawn(saga).lines())
    assert "\\x1b[31mpay" in text
    assert "reserve_the_seat_at… → #1" in text
    assert "|\\x1b[2J" in text


def test_too_many_lines_for_a_screen() -> None:
    """The newest lanes are drawn, under the axis, and the number of the others is told."""
    shown = drawn(stuck_saga(), now_ms=42_500)
    lines = plain(shown.lines(8)).splitlines()
    assert len(lines) == 8
    assert lines[1] == "5 lines above"
    assert lines[-3].startswith("reserve   ← #2")
