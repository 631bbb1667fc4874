"""`amends serve` and `amends migrate`: a real coordinator process, its settings, and what is said when it can't run."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from amends.cli.app import app

AMENDS = [sys.executable, "-c", "import sys; from amends.cli import main; sys.exit(main())"]
WITHOUT = "import sys; sys.modules[{module!r}] = None; from amends.cli import main; sys.exit(main())"


def amends(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command that ends by itself, as a process."""
    return subprocess.run([*AMENDS, *arguments], check=False, capture_output=True, text=True, timeout=60)


@contextmanager
def serving(*arguments: str) -> Generator[tuple[subprocess.Popen[str], str]]:
    """A coordinator on a free port, and its address; whatever happens, its process ends."""
    with subprocess.Popen(
        [*AMENDS, "serve", "--port", "0", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            # Log lines go the same way; the end of the stream ends the wait, and pytest-timeout bounds it.
            line = next((line for line in process.stdout if line.startswith("listening on ")), "")
            assert line, f"it ended with {process.wait()}"
            yield process, line.removeprefix("listening on ").strip()
        finally:
            process.kill()


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
def test_serve_until_told_to_stop(tmp_path: Path, runner: CliRunner, stop: signal.Signals) -> None:
    """One command is a whole coordinator; the other commands find it; SIGTERM and Ctrl-C end it with exit 0."""
    with serving("--ledger-url", f"sqlite:///{tmp_path / 'ledger.db'}") as (process, address):
        listed = runner.invoke(app, ["saga", "list", "--coordinator", address])
        assert (listed.exit_code, listed.stderr) == (0, "no sagas\n")
        unknown = runner.invoke(app, ["saga", "get", "nope", "--coordinator", address])
        assert (unknown.exit_code, "(SAGA_NOT_FOUND)\n" in unknown.stderr) == (1, True)
        undefined = runner.invoke(app, ["saga", "start", "nope", "--input", "{}", "--coordinator", address])
        assert (undefined.exit_code, "(DEFINITION_NOT_FOUND)\n" in undefined.stderr) == (1, True)
        process.send_signal(stop)
        assert process.wait(timeout=30) == 0


def test_serve_on_a_port_that_is_taken(tmp_path: Path) -> None:
    """A clear error, not a second listener."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        port = str(listener.getsockname()[1])
        done = amends("serve", "--port", port, "--ledger-url", f"sqlite:///{tmp_path / 'ledger.db'}")
    assert done.returncode == 1
    assert port in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "named"), [(["--port", "99999"], "AMENDS_PORT"), (["--host", "192.0.2.1"], "AMENDS_INSECURE")]
)
def test_serve_with_settings_that_cannot_be(runner: CliRunner, arguments: list[str], named: str) -> None:
    """A sentence that names the setting, and exit 1."""
    done = runner.invoke(app, ["serve", *arguments])
    assert (done.exit_code, done.stdout) == (1, "")
    assert named in done.stderr
    assert "Traceback" not in done.stderr


def test_serve_without_a_usable_ledger() -> None:
    """A plain error, and never the ledger's password."""
    done = amends("serve", "--ledger-url", "mysql://ada:secret@localhost/x")
    assert done.returncode == 1
    assert done.stderr.startswith("amends: ")
    assert "Traceback" not in done.stderr
    assert "secret" not in done.stdout + done.stderr


def test_migrate_is_safe_to_repeat(runner: CliRunner, tmp_path: Path) -> None:
    """The tables are made once; the second time there is nothing to do, and both end well."""
    for _ in range(2):
        done = runner.invoke(app, ["migrate", "--ledger-url", f"sqlite:///{tmp_path / 'ledger.db'}"])
        assert done.exit_code == 0, done.stderr
        assert done.stdout.strip()
        assert (tmp_path / "ledger.db").exists()


@pytest.mark.parametrize(
    "url", ["nonsense:secret", "sqlite:///no/such/folder/ledger.db", "mysql://ada:secret@localhost/x"]
)
def test_migrate_what_cannot_be_migrated(runner: CliRunner, url: str) -> None:
    """One plain error without the password."""
    done = runner.invoke(app, ["migrate", "--ledger-url", url])
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.startswith("the ledger can't be migrated: ")
    assert "secret" not in done.stderr


@pytest.mark.parametrize(
    ("command", "module"),
    [("serve", "sqlalchemy"), ("serve", "structlog"), ("serve", "pydantic_settings"), ("migrate", "sqlalchemy")],
)
def test_without_the_coordinator_extra(command: str, module: str) -> None:
    """The commands that run a coordinator say what to install."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT.format(module=module), command], check=False, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (f"the coordinator needs its extra (no module {module}): pip install 'amends[coordinator]'\n")
