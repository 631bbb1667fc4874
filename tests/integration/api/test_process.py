"""The coordinator as a process: its one line, its exit codes, a sentence instead of a traceback."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

# grpcio-health-checking ships no types.
from grpc_health.v1 import health_pb2, health_pb2_grpc  # type: ignore[import-untyped]  # ships no types

from amends.v1 import saga_pb2, saga_service_pb2_grpc
from amends.v1 import saga_service_pb2 as pb
from amends_coordinator.bootstrap import migrate
from tests.integration.api.conftest import start_request
from tests.unit.grpc_api.samples import errand

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

READY = "listening on 127.0.0.1:"
BOUND_S = 20


@contextmanager
def process(folder: Path, **settings: str) -> Generator[subprocess.Popen[str]]:
    """A coordinator on a free port with its ledger in `folder`; killed at the end if it still runs."""
    started = subprocess.Popen(
        [sys.executable, "-m", "amends_coordinator"],
        cwd=folder,
        env={**os.environ, "AMENDS_PORT": "0", "AMENDS_STOP_GRACE_S": "5", **settings},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield started
    finally:
        if started.poll() is None:
            started.kill()
        started.communicate(timeout=BOUND_S)


def port_of(running: subprocess.Popen[str]) -> int:
    """The port, once the process is ready."""
    assert running.stdout is not None
    line = running.stdout.readline()
    if not line.startswith(READY):
        raise AssertionError(f"not ready: {line!r} {running.communicate(timeout=BOUND_S)}")
    return int(line.removeprefix(READY))


def complaint(running: subprocess.Popen[str]) -> list[str]:
    """The lines that a process which could not start left; its exit code is 1 and there is no traceback."""
    out, err = running.communicate(timeout=BOUND_S)
    assert (running.returncode, out) == (1, "")
    assert "Traceback" not in err
    return [line for line in err.splitlines() if line.startswith("amends: ")]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_ends_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    """SIGTERM and Ctrl-C end the process with 0; stdout has exactly one line; the ledger was made by itself. What was
    misspelt in its environment stands in its log.
    """
    with process(tmp_path, AMENDS_PROT="1") as running:
        port_of(running)
        running.send_signal(number)
        out, err = running.communicate(timeout=BOUND_S)
    assert (running.returncode, out) == (0, "")
    assert "Traceback" not in err
    assert "node stopped" in err
    assert re.search(r"name is like that of a setting .*AMENDS_PORT.*AMENDS_PROT", err)
    assert (tmp_path / "amends.db").exists()


async def test_answers_and_keeps(tmp_path: Path) -> None:
    """What a client was told is durable (S11): definition and saga are there after a kill -9 and a restart (F14)."""
    with process(tmp_path) as first:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port_of(first)}") as channel:
            stub = saga_service_pb2_grpc.SagaServiceStub(channel)
            await stub.RegisterSagaDefinition(pb.RegisterSagaDefinitionRequest(definition=errand()), timeout=BOUND_S)
            assert (await stub.StartSaga(start_request(), timeout=BOUND_S)).started
        first.kill()
        first.wait(BOUND_S)
    with process(tmp_path) as second:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port_of(second)}") as channel:
            stub = saga_service_pb2_grpc.SagaServiceStub(channel)
            saga = (await stub.GetSaga(pb.GetSagaRequest(saga_id="s-1"), timeout=BOUND_S)).saga
            assert saga.state == saga_pb2.Saga.STATE_RUNNING
            assert saga.intents[0].method == "scenario.v1.StepService/Do"
            waited = pb.WaitSagaRequest(saga_id="s-1", wait_timeout=Duration(nanos=1_000_000))
            assert (await stub.WaitSaga(waited, timeout=BOUND_S)).saga.saga_id == "s-1"
            assert not (await stub.StartSaga(start_request(), timeout=BOUND_S)).started


async def test_health_is_serving(tmp_path: Path) -> None:
    """A process that is ready says so; a ledger in memory leaves no file."""
    with process(tmp_path, AMENDS_LEDGER_URL="memory:") as running:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port_of(running)}") as channel:
            stub: Any = health_pb2_grpc.HealthStub(channel)  # Any: untyped, see the imports
            answer: Any = await stub.Check(health_pb2.HealthCheckRequest(), timeout=BOUND_S)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
    assert not (tmp_path / "amends.db").exists()


def test_a_taken_port(tmp_path: Path) -> None:
    """A port already taken: one sentence, exit code 1, no traceback, and the other's ledger is left alone."""
    with process(tmp_path) as first:
        port = port_of(first)
        (tmp_path / "other").mkdir()
        with process(tmp_path / "other", AMENDS_PORT=str(port)) as second:
            (line,) = complaint(second)
    assert line.startswith(f"amends: port {port} on 127.0.0.1 is already taken; ")


def test_a_ledger_in_use(tmp_path: Path) -> None:
    """One process per ledger: the second one says who has it."""
    with process(tmp_path) as first:
        port_of(first)
        with process(tmp_path) as second:
            (line,) = complaint(second)
    assert str(first.pid) in line


def test_an_unknown_schema(tmp_path: Path) -> None:
    """A schema that this release doesn't know is refused with one sentence, and not touched."""
    url = f"sqlite:///{tmp_path / 'amends.db'}"
    assert "has the schema of this release" in migrate(url)
    assert "has the schema of this release" in migrate(url)
    with sqlite3.connect(tmp_path / "amends.db") as database:
        database.execute("UPDATE alembic_version SET version_num = '9999'")
    database.close()
    with process(tmp_path) as running:
        (line,) = complaint(running)
    assert "9999" in line


def test_wrong_settings(tmp_path: Path) -> None:
    """One sentence for each fault; the password never shows."""
    wrong = {"AMENDS_PORT": "many", "AMENDS_LOG_LEVEL": "loud"}
    with process(tmp_path, **wrong) as running:
        assert len(complaint(running)) == 2
    with process(tmp_path, AMENDS_LEDGER_URL="mysql://me:hunter2@db/x") as running:
        (line,) = complaint(running)
    assert "hunter2" not in line


def test_other_machines_are_kept_out(tmp_path: Path) -> None:
    """Without TLS only loopback, unless it is accepted."""
    with process(tmp_path, AMENDS_HOST="0.0.0.0") as running:  # noqa: S104  # refused: that is the test
        (line,) = complaint(running)
    assert "AMENDS_INSECURE=true" in line
