"""Does the fault matrix see a coordinator that breaks its promises? Made-up calls, each breaking one."""

from __future__ import annotations

from amends.testing.cases import COMMITTED, COMPENSATED
from amends.testing.promises import Seen, SeenCall, broken
from shop.saga import order

STEPS = tuple(step.name for step in order.steps)
UNDONE = ("create_order", "reserve", "authorize")


def calls(*made: tuple[str, str, str]) -> list[SeenCall]:
    """Calls one after the other, each given as step, direction and outcome."""
    return [
        SeenCall(
            step=step,
            direction=direction,
            key=f"saga/{step}/{direction}",
            attempt=1,
            order=2 * number,
            end_order=2 * number + 1,
            outcome=outcome,
        )
        for number, (step, direction, outcome) in enumerate(made)
    ]


def committed() -> list[SeenCall]:
    """The calls of an order that went through."""
    return calls(*((step, "action", "SUCCEEDED") for step in STEPS))


def compensated() -> list[SeenCall]:
    """The calls of an order whose shipment was refused."""
    return calls(
        *((step, "action", "SUCCEEDED") for step in UNDONE),
        ("ship", "action", "REJECTED"),
        *((step, "compensation", "SUCCEEDED") for step in reversed(UNDONE)),
    )


def complaints(made: list[SeenCall], state: str, *, abort_accepted: bool | None = None) -> list[str]:
    """What is broken."""
    return broken(Seen(saga=order, calls=made, state=state, abort_accepted=abort_accepted))


def test_what_is_in_order_is_not_complained_about() -> None:
    """All of them at once."""
    assert complaints(committed(), COMMITTED) == []
    assert complaints(compensated(), COMPENSATED) == []
    assert complaints(compensated(), COMPENSATED, abort_accepted=True) == []


def test_another_key_for_a_later_attempt() -> None:
    """S2."""
    made = committed()
    again = calls(("ship", "action", "SUCCEEDED"))[0]
    again.key, again.order, again.end_order = "saga/ship/other", 100, 101
    assert "S2" in complaints([*made, again], COMMITTED)[0]


def test_two_calls_with_one_key_at_the_same_time() -> None:
    """S2."""
    made = committed()
    made[1].end_order = 3
    again = calls(("create_order", "action", "SUCCEEDED"))[0]
    again.order, again.end_order = 1, 100
    made[0].end_order = 5
    assert any("began before" in each for each in complaints([made[0], again, *made[1:]], COMMITTED))


def test_committed_without_a_success() -> None:
    """S3."""
    made = [call for call in committed() if call.step != "capture"]
    assert [each for each in complaints(made, COMMITTED) if each.startswith("S3")]


def test_committed_after_an_undo() -> None:
    """S3."""
    assert [each for each in complaints([*committed(), *compensated()[-1:]], COMMITTED) if "was made" in each]


def test_compensated_with_something_left() -> None:
    """S4."""
    assert (
        "reserve may have happened"
        in complaints(
            [call for call in compensated() if (call.step, call.direction) != ("reserve", "compensation")], COMPENSATED
        )[0]
    )


def test_compensated_although_an_answer_never_came() -> None:
    """S4: silence proves nothing."""
    made = compensated()
    made[3].outcome = "UNKNOWN"
    assert "ship may have happened" in complaints(made, COMPENSATED)[0]


def test_undone_while_an_action_is_under_way() -> None:
    """S5."""
    made = compensated()
    made[3].end_order = 100
    assert [each for each in complaints(made, COMPENSATED) if each.startswith("S5")]


def test_undone_in_the_wrong_order() -> None:
    """S5."""
    made = compensated()
    wrong = calls(*((call.step, call.direction, call.outcome) for call in (*made[:4], made[5], made[4], made[6])))
    assert [each for each in complaints(wrong, COMPENSATED) if "was undone before authorize" in each]


def test_an_abort_that_was_accepted_and_is_not_kept() -> None:
    """S10."""
    assert complaints(committed(), COMMITTED, abort_accepted=True)
    assert complaints(compensated(), COMPENSATED, abort_accepted=False)
