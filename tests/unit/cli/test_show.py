"""How a saga is drawn: the plain rendering word for word, and what colours and hostile values do to it."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from amends.cli.formats import cut, duration
from amends.cli.show import console, saga_tree
from amends.v1.saga_pb2 import RESOLUTION_UNDONE_BY_HAND, Intent, Saga
from tests.unit.cli.sagas import at, committed_saga, stuck_saga

COMMITTED = """\
order-1042  order  COMMITTED  in 1.42 s  version 0123456789abcdef
├── labels: channel=web, region=north
├── reserve    action  SUCCEEDED  shop.inventory.v1.InventoryService/Reserve
│   └── #1  +3 ms  9 ms  OK  succeeded  node 01890a5d-ac96
└── authorize  action  SUCCEEDED  shop.payments.v1.PaymentsService/Authorize
    ├── #1   +14 ms    0 ms  -                  not sent   node 01890a5d-ac96
    ├── #2  +160 ms  1.00 s  DEADLINE_EXCEEDED  unknown    node 01890a5d-ac96
    └── #3  +1.40 s   12 ms  OK                 succeeded  node 01890a5d-ac96
"""

STUCK = """\
order-1043  order  COMPENSATING  since 2026-11-30 00:53:20Z
├── failure: step ship  NO_CARRIER  FAILED_PRECONDITION  no carrier for [bold]Mars
├── attention required: 1 open dead letter
├── compensations owed: 2
├── ship       action        REJECTED  shop.shipping.v1.ShippingService/Ship
│   ├── #1  +20 ms  4 ms  FAILED_PRECONDITION  rejected  node 01890a5d-ac96
│   └── said: no carrier for [bold]Mars
├── authorize  compensation  PARKED    shop.payments.v1.PaymentsService/Void
│   ├── #1    +1.00 s  50 ms  UNAVAILABLE  unknown  node 01890a5d-ac96
│   ├── #2    +2.00 s  50 ms  UNAVAILABLE  unknown  node 01890a5d-ac96
│   ├── ... 36 more: 2 DEADLINE_EXCEEDED, 34 UNAVAILABLE
│   ├── #39  +39.00 s  50 ms  UNAVAILABLE  unknown  node 01890a5d-ac96
│   ├── #40  +40.00 s  50 ms  UNAVAILABLE  unknown  node 01890a5d-ac96
│   └── said: connection refused\\x1b[2J
├── reserve    compensation  PENDING   shop.inventory.v1.InventoryService/Release
│   ├── #1  +41.00 s  -  -  not known yet  node 01890a5d-ac96
│   └── next attempt at 2026-11-30 00:54:05Z
└── dead letter open  BUDGET_SPENT  authorize compensation  +40.10 s  connection refused  \
order-1043/authorize/compensation/1
"""


def drawn(saga: Saga) -> str:
    """What `amends saga get ID | cat` would print."""
    target = io.StringIO()
    console(target).print(saga_tree(saga))
    return target.getvalue()


def coloured(saga: Saga) -> str:
    """What a wide terminal with colours would be sent."""
    target = io.StringIO()
    Console(file=target, force_terminal=True, color_system="standard", width=200, highlight=False).print(
        saga_tree(saga)
    )
    return target.getvalue()


@pytest.mark.parametrize(("saga", "expected"), [(committed_saga(), COMMITTED), (stuck_saga(), STUCK)])
def test_plain_rendering(saga: Saga, expected: str) -> None:
    """A saga is told whole and truthfully (S3, S4 as people see them): every row, attempt, count and dead letter."""
    assert drawn(saga) == expected


def test_states_are_coloured_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Colours repeat what the words say."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[32mCOMMITTED" in coloured(committed_saga())
    assert "\x1b[1;31mPARKED" in coloured(stuck_saga())


def test_no_color_is_obeyed(monkeypatch: pytest.MonkeyPatch) -> None:
    """With NO_COLOR a terminal is sent the same words in no colour."""
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[32m" not in coloured(committed_saga())
    assert "\x1b[1;31m" not in coloured(stuck_saga())


def test_a_participants_text_cannot_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    """Control characters and markup of others are printed, never carried out."""
    monkeypatch.setenv("NO_COLOR", "1")
    saga = stuck_saga()
    saga.failure.message = "\x1b[2J\x07[red]gone\r\n\x00"
    text = drawn(saga)
    assert "\\x1b[2J\\x07[red]gone  \\x00" in text
    assert not set(text) & {"\x1b", "\x07", "\r", "\x00"}


def test_unknown_enum_values_are_numbers() -> None:
    """A newer coordinator's states don't break an older command line."""
    saga = Saga.FromString(Saga(saga_id="x").SerializeToString() + b"\x20\x63")
    assert drawn(saga) == "x  (client-driven)  99\n"


def test_attempts_that_are_all_left_out_are_counted() -> None:
    """Counts are shown even where no attempt is kept in full."""
    saga = Saga(saga_id="x", create_time=at(0), end_time=at(5))
    saga.intents.append(Intent(step="a", attempts_left_out={"": 2}))
    assert "... 2 more: 2 without an answer" in drawn(saga)


@pytest.mark.parametrize(
    ("span_us", "words"),
    [
        (0, "0 ms"),
        (999_400, "999 ms"),
        (1_000_000, "1.00 s"),
        (59_990_000, "59.99 s"),
        (61_000_000, "1 min 1 s"),
        (3_600_000_000, "1 h 0 min"),
    ],
)
def test_durations(span_us: int, words: str) -> None:
    """Each size has its unit."""
    assert duration(span_us) == words


def test_long_values_are_cut() -> None:
    """No value floods the terminal, also not one whose characters are escaped."""
    assert cut("x" * 160) == "x" * 160
    assert cut("x" * 161) == "x" * 157 + "..."
    assert len(cut("\x00" * 1_000)) == 160


def test_what_a_person_found_is_shown_with_the_name() -> None:
    """A resolved call says who resolved it and how."""
    saga = stuck_saga()
    saga.intents[1].state = Intent.STATE_RESOLVED
    saga.intents[1].resolution = RESOLUTION_UNDONE_BY_HAND
    saga.intents[1].resolved_by = "ada"
    tree = drawn(saga)
    assert "RESOLVED" in tree
    assert "resolved by ada: undone by hand" in tree


def test_a_saga_that_retention_has_emptied(monkeypatch: pytest.MonkeyPatch) -> None:
    """F05: what is left of it says how it ended, and why nothing more is to be seen."""
    monkeypatch.setenv("NO_COLOR", "1")
    saga = Saga(saga_id="order-1", definition_name="order", state=Saga.STATE_COMPENSATED, purged=True)
    saga.failure.reason = "CARD_DECLINED"
    assert drawn(saga).splitlines() == [
        "order-1  order  COMPENSATED",
        "├── failure: the saga as a whole  CARD_DECLINED",
        "└── purged: payloads and ledger rows were removed by retention",
    ]
