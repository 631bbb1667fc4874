"""The pytest plugin: a test that is marked with a fault matrix runs once per case of it.

    ORDER = FaultMatrix(order, input=PlaceOrder(...), world=ShopWorld)

    @pytest.mark.fault_matrix(ORDER)
    def test_order_survives(fault_case: MatrixCase) -> None:
        fault_case.run()

Each case is a test of its own, `test_order_survives[order/reserve/action/reply-lost]`. With `every=9` beside the matrix
only a spread of them is run, every ninth case; `--fault-all` runs all of them nevertheless. pytest loads this module in
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
    parser.getgroup("amends").addoption(
        "--fault-all", action="store_true", help="run all cases of a fault matrix, also where its mark says `every=`"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Declares the mark."""
    config.addinivalue_line(
        "markers", f"{MARK}(matrix, every=1): run this test once per case of a FaultMatrix, or per every n-th case"
    )


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
    options = metafunc.config.option
    every = 1 if options.fault_all else int(mark.kwargs.get("every", 1))
    test = f"{_relative(metafunc)}::{_qualified(metafunc)}"
    flags = f"--fault-seed={options.fault_seed}{' --fault-all' if options.fault_all else ''}"
    cases = [
        MatrixCase(
            matrix,
            case,
            seed=options.fault_seed,
            replay=_command(f"{test}[{case.name}]", flags),
            unmet=pytest.skip,
        )
        for case in matrix.cases()[::every]
    ]
    metafunc.parametrize(FIXTURE, cases, ids=[each.case.name for each in cases])


def _qualified(metafunc: pytest.Metafunc) -> str:
    return "::".join(metafunc.definition.nodeid.split("::")[1:])


def _relative(metafunc: pytest.Metafunc) -> str:
    path, here = Path(metafunc.definition.path), Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def _command(test: str, flags: str) -> str:
    return f"python -m pytest {shlex.quote(test)} {flags}"
