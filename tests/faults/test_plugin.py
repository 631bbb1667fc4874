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


@pytest.mark.fault_matrix(FaultMatrix(transfer, input=RENT, world=LeakyWorld), every=40)
def test_money(fault_case):
    fault_case.run()
"""


def run_pytest(folder: Path, *options: str) -> str:
    """What a pytest says that knows only the tests above."""
    (folder / "test_money.py").write_text(TESTS)
    (folder / "pytest.ini").write_text("[pytest]\n")  # a project of its own, wherever temporary folders are
    paths = [str(CHECKOUT / part) for part in ("coordinator", "sdk", "participants", "tests/protos", ".")]
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "amends.testing.plugin", *options]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False)
    return done.stdout + done.stderr


def test_each_case_is_a_test_with_a_readable_name(tmp_path: Path) -> None:
    """One test per case; `every=` takes a spread of them."""
    names = [line for line in run_pytest(tmp_path, "--collect-only", "-q").splitlines() if "::" in line]
    assert names[0] == "test_money.py::test_money[transfer/no-fault]"
    assert len(names) == 4


def test_a_failure_tells_step_fault_timeline_and_how_to_play_it_again(tmp_path: Path) -> None:
    """All that somebody needs who has never seen it; `--fault-all` has the cases that `every=` leaves out."""
    name = "test_money.py::test_money[transfer/debit/action/reply-lost]"
    said = run_pytest(tmp_path, name, "--fault-seed=7", "--fault-all")
    for part in (
        "step    debit, action",
        "fault   the work is done, and the first reply is lost",
        "the author's check: AssertionError: money is gone",
        "timeline, in virtual seconds (seed 7)",
        "debit/action #1 SUCCEEDED",
        f"replay  python -m pytest '{name}' --fault-seed=7 --fault-all",
    ):
        assert part in said, said


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
