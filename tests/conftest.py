"""What every test shares: where temporary files go, how Hypothesis behaves on a busy machine, and a real PostgreSQL."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.postgres import NOT_TESTED, LedgerDatabases, PostgresServer, find_package

# Where the project is installed its entry point names it too; pytest loads it once.
pytest_plugins = ("amends.testing.plugin",)

CHECKOUT = Path(__file__).resolve().parent.parent

# pytest's numbered temporary folders stay inside the checkout, so that clones on one machine don't share anything.
_temporary = CHECKOUT / ".pytest_tmp"
_temporary.mkdir(exist_ok=True)
os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_temporary))

# No deadline per example: a slow machine is not a wrong answer. A failure prints the blob that replays it.
settings.register_profile("amends", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("amends")


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL of this test run, begun by the first test that asks for it and ended with the last one."""
    package = find_package()
    if package is None:
        pytest.skip(NOT_TESTED)
    server = PostgresServer(package)
    yield server
    server.stop()


@pytest.fixture(scope="session")
def ledger_databases(postgres: PostgresServer) -> LedgerDatabases:
    """Where tests get a database with an empty ledger from."""
    return LedgerDatabases(postgres)


@pytest.fixture
def postgres_ledger(ledger_databases: LedgerDatabases) -> Iterator[str]:
    """The URL of an empty ledger on PostgreSQL, which the test may fill, but whose tables it leaves as they are."""
    name = ledger_databases.take()
    yield ledger_databases.server.url(name)
    ledger_databases.give_back(name)


@pytest.fixture
def postgres_database(postgres: PostgresServer) -> Iterator[str]:
    """The URL of a database without any table, which the test may do anything to."""
    name = postgres.create_database()
    yield postgres.url(name)
    postgres.drop_database(name)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many states of the core the slice of the exploration saw (tests/properties/test_explore.py)."""
    reports: list[pytest.TestReport] = terminalreporter.getreports("passed")
    counts = [count for report in reports for name, count in report.user_properties if name == "explored_states"]
    if counts:
        terminalreporter.write_line(f"explore: states={sum(map(int, map(str, counts)))} in this slice")
