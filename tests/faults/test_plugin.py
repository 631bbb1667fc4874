"""The pytest plugin, as an author meets it: in a pytest of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]

TESTS = """
import pytest
from amends.testing import FaultMatrix
from bank.saga import transfer
from tests.faults.bank_world import RENT, BankWorld


class LeakyWorld(BankWorld):
    async def check(self, end):
        assert self._number("bank-a", "SELECT minor_units FROM account") == 0, "money is gone"


@pytest.mark.fault_matrix(FaultMatrix(transfer, input=RENT, world=LeakyWorld), every=2)
def test_money(fault_case):
    fault_case.run()
"""


MISUSED = """

@pytest.mark.parametrize("day", ["mon::day", "tuesday"])
@pytest.mark.fault_matrix(FaultMatrix(transfer, input=RENT, world=LeakyWorld), every=1_000)
def test_on(fault_case, day):
    fault_case.run()


@pytest.mark.fault_matrix(FaultMatrix(transfer, input=RENT, world=LeakyWorld), every=1_000)
def test_forgets(fault_case):
    fault_case.run


class TestSkipped:
    @pytest.mark.fault_matrix(FaultMatrix(transfer, input=RENT, world=LeakyWorld), every=1_000)
    def test_today(self, fault_case):
        pytest.skip("not today")
"""

SEVERAL = """

@pytest.mark.fault_matrix(FaultMatrix(transfer, input=RENT, world=LeakyWorld))
@pytest.mark.fault_matrix(FaultMatrix(transfer, input=RENT, world=BankWorld))
def test_both(fault_case):
    fault_case.run()
"""

EVERY_NONE = """

@pytest.mark.fault_matrix(FaultMatrix(transfer, input=RENT, world=BankWorld), every=0)
def test_none(fault_case):
    fault_case.run()
"""


def run_pytest(folder: Path, *options: str, tests: str = TESTS) -> str:
    """What a pytest says that knows only the tests above."""
    (folder / "test_money.py").write_text(tests)
    (folder / "pytest.ini").write_text("[pytest]\n")  # a project of its own, wherever temporary folders are
    paths = [str(CHECKOUT / part) for part in ("coordinator", "sdk", "participants", "tests/protos", ".")]
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "amends.testing.plugin", *options]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False)
    return done.stdout + done.stderr


def test_each_case_is_a_test_and_a_failure_tells_how_to_play_it_again(tmp_path: Path) -> None:
    """Readable names, every second case, and all that somebody needs who has never seen a failure."""
    said = run_pytest(tmp_path, "-v", "-k", "debit and action and lost and not always and not then", "--fault-seed=7")
    name = "test_money.py::test_money[transfer/debit/action/reply-lost]"
    assert f"{name} FAILED" in said, said
    assert "transfer/debit/action/request-lost]" not in said
    for part in (
        "step    debit, action",
        "fault   the work is done, and the first reply is lost",
        "the author's check: AssertionError: money is gone",
        "timeline, in virtual seconds (seed 7)",
        "debit/action #1 SUCCEEDED",
        f"replay  python -m pytest '{name}' --fault-seed=7",
    ):
        assert part in said, said


def test_a_test_that_tries_nothing_fails_and_one_with_more_parameters_names_itself(tmp_path: Path) -> None:
    """A test can't pass by forgetting its case, and the command of a failure names a test that is there."""
    said = run_pytest(tmp_path, "-v", "-k", "test_on or forgets or today", tests=TESTS + MISUSED)
    assert "test_forgets[transfer/no-fault] FAILED" in said, said
    assert "nothing was tried: call fault_case.run()" in said
    assert "test_today[transfer/no-fault] SKIPPED" in said
    for day in ("mon::day", "tuesday"):
        assert f"replay  python -m pytest 'test_money.py::test_on[transfer/no-fault-{day}]' --fault-seed=0" in said, (
            said
        )


def test_a_mark_of_which_a_part_would_be_left_out_is_refused(tmp_path: Path) -> None:
    """Of two matrices at one test the second would never be played; and no case at all is no test."""
    said = run_pytest(tmp_path, "--collect-only", tests=TESTS + SEVERAL)
    assert "test_both is marked with several matrices: write a test for each" in said, said
    said = run_pytest(tmp_path, "--collect-only", tests=TESTS + EVERY_NONE)
    assert "test_none: every=0 can't be" in said, said


def test_what_is_not_marked_loads_nothing() -> None:
    """pytest loads the plugin in every project that has the SDK."""
    loaded = subprocess.run(
        [sys.executable, "-c", "import sys, amends.testing.plugin; print([m for m in sys.modules])"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for heavy in ("grpc", "google.protobuf", "sqlalchemy", "amends_coordinator", "amends.testing.matrix"):
        assert f"'{heavy}'" not in loaded
