"""`amends migrate` and `amends serve` with a ledger on PostgreSQL, as real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from typer.testing import CliRunner

from amends.cli.app import app
from tests.postgres import PostgresServer
from tests.waiting import eventually_blocking

AMENDS = [sys.executable, "-m", "amends.cli"]
PASSWORD = "s3cret"
QUICK = {"AMENDS_LEASE_TTL_S": "1.5", "AMENDS_HEARTBEAT_INTERVAL_S": "0.5", "AMENDS_SWEEP_INTERVAL_S": "0.2"}
LONGEST_NAME = "n" * 64


def with_password(url: str) -> str:
    """The URL with a password in it, which the server doesn't ask for."""
    return url.replace("postgres@", f"postgres:{PASSWORD}@")


def amends(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command that ends by itself, as a process."""
    return subprocess.run([*AMENDS, *arguments], check=False, capture_output=True, text=True, timeout=60)


@contextmanager
def serving(url: str, log: Path, **settings: str) -> Generator[tuple[subprocess.Popen[bytes], str]]:
    """A coordinator on a free port, and its address; whatever happens, its process ends. All it says goes to `log`."""
    environment = {**os.environ, **QUICK, **settings, "AMENDS_LEDGER_URL": url}
    with (
        log.open("wb") as said,
        subprocess.Popen([*AMENDS, "serve", "--port", "0"], stdout=said, stderr=said, env=environment) as process,
    ):
        try:
            eventually_blocking(
                lambda: "listening on " in log.read_text() or process.poll() is not None,
                what="the coordinator listens",
                bound_s=60,
            )
            assert process.poll() is None, log.read_text()
            yield process, log.read_text().partition("listening on ")[2].split()[0]
        finally:
            process.kill()


def listed(runner: CliRunner, address: str) -> tuple[int, str]:
    """The exit code of `amends saga list`, and what it complains about."""
    result = runner.invoke(app, ["saga", "list", "--coordinator", address])
    return result.exit_code, result.stderr


def nodes(url: str) -> list[tuple[str, bool]]:
    """The incarnations in the ledger, oldest first."""
    with psycopg.connect(url) as connection:
        found = connection.execute("SELECT node_id, fenced FROM node ORDER BY started_time").fetchall()
    return [(str(node_id), bool(fenced)) for node_id, fenced in found]


def test_migrate_then_serve(postgres_database: str, runner: CliRunner, tmp_path: Path) -> None:
    """Two commands are a whole coordinator on PostgreSQL, on a host with a long name too; it ends with exit 0, the next
    one begins at once, and nothing that either says has the password in it.
    """
    url = with_password(postgres_database)
    for _ in range(2):
        done = runner.invoke(app, ["migrate", "--ledger-url", url])
        assert (done.exit_code, done.stderr) == (0, "")
        assert done.stdout.startswith("the ledger postgresql://127.0.0.1:")
        assert PASSWORD not in done.stdout
    for count in (1, 2):
        log = tmp_path / f"{count}.log"
        with serving(url, log, AMENDS_NODE_NAME=LONGEST_NAME) as (process, address):
            assert listed(runner, address) == (0, "no sagas\n")
            assert len(nodes(postgres_database)) == count
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=30) == 0
        assert PASSWORD not in log.read_text()
    assert [fenced for _, fenced in nodes(postgres_database)] == [True, True]


def test_serve_does_not_make_tables_by_itself(postgres_database: str) -> None:
    """A database that exists is never changed without being asked to: the sentence says who does that."""
    done = amends("serve", "--port", "0", "--ledger-url", with_password(postgres_database))
    assert done.returncode == 1
    assert "run `amends migrate`" in done.stderr
    assert PASSWORD not in done.stdout + done.stderr


@pytest.mark.parametrize("command", [["serve", "--port", "0"], ["migrate"]])
def test_a_server_that_is_not_there(command: list[str]) -> None:
    """One plain sentence, exit 1, and not the password."""
    done = amends(*command, "--ledger-url", f"postgresql://ada:{PASSWORD}@127.0.0.1:1/ledger")
    assert (done.returncode, "Traceback" in done.stderr) == (1, False)
    assert "the ledger at postgresql://127.0.0.1:1/ledger can't be used" in done.stderr
    assert PASSWORD not in done.stdout + done.stderr


def test_a_second_coordinator_is_refused(postgres_ledger: str, tmp_path: Path) -> None:
    """S7: one process per ledger; the second is told who has it."""
    with serving(with_password(postgres_ledger), tmp_path / "first.log"):
        done = amends("serve", "--port", "0", "--ledger-url", with_password(postgres_ledger))
    assert done.returncode == 1
    assert "the ledger is in use: session" in done.stderr
    assert PASSWORD not in done.stdout + done.stderr


def test_a_lock_that_somebody_else_has_for_a_while(postgres_ledger: str, runner: CliRunner, tmp_path: Path) -> None:
    """S7, L1: a coordinator whose lock went to somebody else asks for it again until it gets it, and then goes on."""
    with (
        serving(with_password(postgres_ledger), tmp_path / "coordinator.log") as (process, address),
        psycopg.connect(postgres_ledger, autocommit=True) as somebody,
        psycopg.connect(postgres_ledger, autocommit=True) as observer,
        ThreadPoolExecutor(1) as beside,
    ):
        key = "hashtextextended('amends ledger in public', 0)"
        locks = (
            "FROM pg_locks JOIN pg_stat_activity USING (pid) "
            "WHERE locktype = 'advisory' AND datname = current_database()"
        )
        # Somebody stands in line before the lock is free, or the coordinator could have it back at once.
        locked = beside.submit(somebody.execute, f"SELECT pg_advisory_lock({key})".encode())
        eventually_blocking(
            lambda: observer.execute(f"SELECT pid {locks} AND NOT granted".encode()).fetchone() is not None,
            what="somebody waits for the lock",
        )
        ended = observer.execute(f"SELECT pg_terminate_backend(pid, 5000) {locks} AND granted".encode()).fetchall()
        assert ended == [(True,)]
        locked.result(timeout=30)
        eventually_blocking(
            lambda: "the ledger is in use: session" in (tmp_path / "coordinator.log").read_text(),
            what="it asks for the lock in vain",
            bound_s=30,
        )
        assert len(nodes(postgres_ledger)) == 1
        somebody.execute(f"SELECT pg_advisory_unlock({key})".encode())
        eventually_blocking(lambda: listed(runner, address)[0] == 0, what="it answers again", bound_s=30)
        assert [fenced for _, fenced in nodes(postgres_ledger)] == [True, False]
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 0


@pytest.mark.crash
def test_the_database_goes_and_comes_back(
    postgres: PostgresServer, postgres_ledger: str, runner: CliRunner, tmp_path: Path
) -> None:
    """L1: while the server is away requests are told to come again; when it is back the coordinator goes on by itself,
    at the same address, as a new incarnation.
    """
    log = tmp_path / "coordinator.log"
    with serving(with_password(postgres_ledger), log) as (process, address):
        (first,) = nodes(postgres_ledger)
        postgres.kill()
        try:
            code, complaint = listed(runner, address)
            assert (code, "UNAVAILABLE" in complaint or "can't be reached" in complaint) == (1, True), complaint
        finally:
            postgres.start()
        eventually_blocking(lambda: len(nodes(postgres_ledger)) == 2, what="a new incarnation", bound_s=30)
        eventually_blocking(lambda: listed(runner, address)[0] == 0, what="it answers again", bound_s=30)
        assert process.poll() is None
        assert nodes(postgres_ledger)[0] == (first[0], True)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 0
    assert PASSWORD not in log.read_text()
    assert "Traceback" not in log.read_text()
