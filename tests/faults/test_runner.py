"""`python -m amends.testing`: how far it is, what went wrong, how to play it again, and one line of counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from amends.testing import FaultMatrix
from amends.testing.runner import main
from shop.saga import order
from tests.faults.shop_world import TEAPOT, ShopWorld

if TYPE_CHECKING:
    from typing import Self

SHOP, PLANTED = "tests.faults.shop_world:ORDER", "tests.faults.test_planted_bugs:WITHOUT_BARRIER"


class NoWorld(ShopWorld):
    """A world that can't be made."""

    async def __aenter__(self) -> Self:
        raise OSError("no place for a shop")


NOWHERE = FaultMatrix(order, input=TEAPOT, world=NoWorld)


def test_a_consistent_case(capsys: pytest.CaptureFixture[str]) -> None:
    """The last line counts sagas, cases, and those that are consistent."""
    assert main([SHOP, "--case", "order/no-fault"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "fault_matrix: sagas=1 cases=1 consistent=1"


def test_an_inconsistent_case(capsys: pytest.CaptureFixture[str]) -> None:
    """It is told in full, with the one command that plays it again with its seed."""
    case = "order/reserve/action/reply-lost"
    assert main([PLANTED, "--case", case, "--seed", "7"]) == 1
    said = capsys.readouterr().out
    assert "2 of reservation stand" in said
    assert f"replay  python -m amends.testing {PLANTED} --case {case} --seed 7" in said
    assert said.splitlines()[-1] == "fault_matrix: sagas=1 cases=1 consistent=0"


def test_a_case_that_can_not_go_wrong_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """A participant without a guard has no moment before its commit: the case isn't judged, and that is said."""
    assert main([PLANTED, "--case", "order/reserve/action/participant-dies-before-commit"]) == 0
    said = capsys.readouterr().out
    assert "1 not judged, because what goes wrong there never could: order/reserve/action/" in said
    assert said.splitlines()[-1] == "fault_matrix: sagas=1 cases=0 consistent=0"


def test_a_world_that_can_not_be_made(capsys: pytest.CaptureFixture[str]) -> None:
    """It is told, and counts as a case that isn't consistent; the others are played nevertheless."""
    assert main(["tests.faults.test_runner:NOWHERE", "--case", "order/no-fault"]) == 1
    said = capsys.readouterr().out
    assert "order/no-fault could not be played" in said
    assert "no place for a shop" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            [SHOP, "--case", "order/reserve/action/flood"],
            "has no case 'order/reserve/action/flood'; it has: order/reserve",
        ),
        (["tests.faults.shop_world:TEAPOT"], "is no fault matrix: write MODULE:NAME"),
        (["tests.faults.nowhere:ORDER"], "No module named 'tests.faults.nowhere'"),
    ],
)
def test_what_can_not_be_run(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The error says what there is instead."""
    assert main(arguments) == 2
    assert said in capsys.readouterr().err
