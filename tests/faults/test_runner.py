"""`python -m amends.testing`: how far it is, what went wrong, how to play it again, and one line of counts."""

from __future__ import annotations

import pytest

from amends.testing.runner import main

SHOP, PLANTED = "tests.faults.shop_world:ORDER", "tests.faults.test_planted_bugs:WITHOUT_BARRIER"


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
