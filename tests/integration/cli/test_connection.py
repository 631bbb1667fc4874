"""What the command line says when there is no coordinator where it was told to look."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import grpc
import pytest
from typer.testing import CliRunner

from amends.cli import saga
from amends.cli.app import app
from tests.integration.cli.api import SagaApi


class Silent(BaseHTTPRequestHandler):
    """Answers web requests and logs nothing."""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it so
        """Nothing goes to standard error, where the tests look for the command's own words."""


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port whose listener takes connections and never says a word."""
    with closing(socket.create_server(("127.0.0.1", 0), backlog=8)) as listener:
        yield listener.getsockname()[1]


@pytest.fixture
def other_service() -> Iterator[int]:
    """A gRPC server that is no coordinator."""
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield port
    server.stop(None).wait()


@pytest.fixture
def web_server() -> Iterator[int]:
    """An HTTP/1 server."""
    server = HTTPServer(("127.0.0.1", 0), Silent)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


def list_at(runner: CliRunner, address: str) -> list[str]:
    """The lines of the error that `amends saga list` ends with."""
    done = runner.invoke(app, ["saga", "list", "--coordinator", address])
    assert (done.exit_code, done.stdout) == (1, "")
    assert "Traceback" not in done.stderr
    return done.stderr.splitlines()


def test_no_coordinator(runner: CliRunner) -> None:
    """A refused connection: where, and how to start one."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        port = listener.getsockname()[1]
    lines = list_at(runner, f"localhost:{port}")
    assert lines[0].startswith(f"no coordinator answers at localhost:{port}: ")
    assert lines[1:] == [
        "Start one with `amends dev`, or name its address with --coordinator or in AMENDS_COORDINATOR."
    ]


@pytest.mark.parametrize(
    "address",
    ["", "localhost", "localhost:", "localhost:0", "localhost:70000", "http://localhost:7070", "a b:1", "::1:7070"],
)
def test_an_address_that_can_be_none(runner: CliRunner, address: str) -> None:
    """Nothing is tried; the right form is shown."""
    assert list_at(runner, address) == [
        f"{address!r} is no address of a coordinator.",
        "Write HOST:PORT, for example localhost:7070, with --coordinator or in AMENDS_COORDINATOR.",
    ]


def test_an_address_in_grpcs_own_form(api: SagaApi, runner: CliRunner) -> None:
    """What gRPC itself resolves is left to it."""
    address = f"ipv4:127.0.0.1:{api.address.rsplit(':', 1)[1]}"
    assert runner.invoke(app, ["saga", "list", "--coordinator", address]).exit_code == 0


def test_another_grpc_service(runner: CliRunner, other_service: int) -> None:
    """What answers is no coordinator."""
    lines = list_at(runner, f"localhost:{other_service}")
    assert lines[0].startswith(f"what answers at localhost:{other_service} is no amends coordinator")
    assert lines[1:] == ["Check the address that --coordinator or AMENDS_COORDINATOR names."]


def test_a_web_server(runner: CliRunner, web_server: int) -> None:
    """Neither is one that speaks HTTP/1."""
    lines = list_at(runner, f"localhost:{web_server}")
    assert lines[0].startswith(f"no coordinator answers at localhost:{web_server}: ")
    assert len(lines) == 2


def test_silence(runner: CliRunner, silent_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """No command waits for ever."""
    monkeypatch.setattr(saga, "CALL_TIMEOUT_S", 0.2)
    lines = list_at(runner, f"localhost:{silent_port}")
    assert len(lines) == 2
    assert f"localhost:{silent_port}" in lines[0]
