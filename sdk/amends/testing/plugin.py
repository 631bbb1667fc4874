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

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

    import pluggy

    from amends.testing.matrix import MatrixCase

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
    from amends.testing.matrix import MatrixCase, is_matrix

    if FIXTURE not in metafunc.fixturenames:
        raise pytest.UsageError(f"{metafunc.function.__name__} is marked {MARK}: let it take {FIXTURE} and run() that")
    matrix: object = mark.args[0] if mark.args else None
    if not is_matrix(matrix):
        raise pytest.UsageError(f"{metafunc.function.__name__}: write @pytest.mark.{MARK}(MATRIX), with a FaultMatrix")
    if sum(each.name == MARK for each in metafunc.definition.own_markers) > 1:
        raise pytest.UsageError(f"{metafunc.function.__name__} is marked with several matrices: write a test for each")
    options = metafunc.config.option
    given: object = mark.kwargs.get("every", 1)
    if not isinstance(given, int) or given < 1:
        raise pytest.UsageError(f"{metafunc.function.__name__}: every={given!r} can't be: write every=9, for example")
    every = 1 if options.fault_all else given
    cases = [MatrixCase(matrix, case, seed=options.fault_seed, unmet=pytest.skip) for case in matrix.cases()[::every]]
    metafunc.parametrize(FIXTURE, cases, ids=[each.case.name for each in cases])


@pytest.hookimpl(hookwrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, pluggy.Result[object], None]:
    """Tells a case how this very test is run again, and fails a test that forgets to run its case."""
    case = _case_of(pyfuncitem)
    if case is not None:
        case.replay, case.was_run = _command(pyfuncitem), False
    outcome = yield
    if case is not None and not case.was_run and outcome.excinfo is None:
        forgotten = pytest.fail.Exception(f"nothing was tried: call {FIXTURE}.run()", pytrace=False)
        outcome.force_exception(forgotten)


def _case_of(item: pytest.Function) -> MatrixCase | None:
    """The case that a test is about; None for tests that have nothing to do with this."""
    if item.get_closest_marker(MARK) is None:
        return None
    from amends.testing.matrix import MatrixCase

    case: object = item.callspec.params.get(FIXTURE) if hasattr(item, "callspec") else None
    return case if isinstance(case, MatrixCase) else None


def _command(item: pytest.Function) -> str:
    """What runs one test again, from here."""
    path, here = item.path, Path.cwd()
    file = path.relative_to(here) if path.is_relative_to(here) else path
    test = "::".join((str(file), *item.nodeid.split("::")[1:]))
    options = item.config.option
    return f"python -m pytest {shlex.quote(test)} --fault-seed={options.fault_seed}" + (
        " --fault-all" if options.fault_all else ""
    )
