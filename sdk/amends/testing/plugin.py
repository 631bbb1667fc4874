"""The pytest plugin: a test that is marked with a fault matrix runs once per case of it.

    ORDER = FaultMatrix(order, input=PlaceOrder(...), world=ShopWorld)

    @pytest.mark.fault_matrix(ORDER)
    def test_order_survives(fault_case: MatrixCase) -> None:
        fault_case.run()

Each case is a test of its own, `test_order_survives[order/reserve/action/reply-lost]`. pytest loads this module in
every project that has the SDK installed, so it imports nothing of it until a test is marked.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

FIXTURE = "fault_case"
MARK = "fault_matrix"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds `--fault-seed`."""
    parser.getgroup("amends").addoption(
        "--fault-seed", type=int, default=0, help="seed of ids and chance in the cases of a fault matrix (default: 0)"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Declares the mark."""
    config.addinivalue_line("markers", f"{MARK}(matrix): run this test once per case of an amends.testing.FaultMatrix")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Makes one test per case."""
    mark = metafunc.definition.get_closest_marker(MARK)
    if mark is None:
        return
    import pytest

    from amends.testing.matrix import MatrixCase, is_matrix

    if FIXTURE not in metafunc.fixturenames:
        raise pytest.UsageError(f"{metafunc.function.__name__} is marked {MARK}: let it take {FIXTURE} and run() that")
    matrix: object = mark.args[0] if mark.args else None
    if not is_matrix(matrix):
        raise pytest.UsageError(f"{metafunc.function.__name__}: write @pytest.mark.{MARK}(MATRIX), with a FaultMatrix")
    seed = int(metafunc.config.getoption("--fault-seed") or 0)
    test = f"{_relative(metafunc)}::{_qualified(metafunc)}"
    cases = [
        MatrixCase(matrix, case, seed=seed, replay=_command(f"{test}[{case.name}]", seed)) for case in matrix.cases()
    ]
    metafunc.parametrize(FIXTURE, cases, ids=[each.case.name for each in cases])


def _qualified(metafunc: pytest.Metafunc) -> str:
    return "::".join(metafunc.definition.nodeid.split("::")[1:])


def _relative(metafunc: pytest.Metafunc) -> str:
    path, here = Path(metafunc.definition.path), Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def _command(test: str, seed: int) -> str:
    return f"python -m pytest {shlex.quote(test)} --fault-seed={seed}"
