"""The participant in Go: built where Go is there, run as a process, called the way a coordinator does."""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import signal
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, TypeVar

import grpc
import pytest

from amends import key_uuid
from points.v1.points_pb2 import (
    FindSpendRequest,
    GiveBackRequest,
    GiveBackResponse,
    SpendRequest,
    SpendResponse,
)
from points.v1.points_pb2_grpc import PointsServiceStub
from tests.conftest import CHECKOUT

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from pathlib import Path

SOURCES = CHECKOUT / "participants" / "go"
CACHE = CHECKOUT / ".go"
NOT_TESTED = "the participant in Go (docs/barrier.md kept by hand) was not tested"

MODULES_BOUND_S = 120.0
BUILD_BOUND_S = 400.0
START_BOUND_S = 30.0
CALL_BOUND_S = 10.0

Response = TypeVar("Response", SpendResponse, GiveBackResponse)


def built() -> Path:
    """The program, built from what stands here now; skips the test where it can't be.

    Everything that Go makes or fetches stays inside this checkout, and two test runs don't build at once.
    """
    if shutil.which("go") is None:
        pytest.skip(f"{NOT_TESTED}: there is no Go here")
    CACHE.mkdir(exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _must_do(["go", "mod", "download"], MODULES_BOUND_S, otherwise="its modules could not be had")
        program = CACHE / "points"
        building = _go(["go", "build", "-o", str(program), "."], BUILD_BOUND_S)
        if building is None:
            pytest.skip(f"{NOT_TESTED}: it was not built within {BUILD_BOUND_S:.0f} s")
        assert building.returncode == 0, building.stderr
    return program


def _must_do(command: list[str], bound_s: float, *, otherwise: str) -> None:
    done = _go(command, bound_s)
    if done is None or done.returncode:
        said = f"no answer within {bound_s:.0f} s" if done is None else done.stderr.strip().splitlines()[-1]
        pytest.skip(f"{NOT_TESTED}: {otherwise} ({said})")


def _go(command: list[str], bound_s: float) -> subprocess.CompletedProcess[str] | None:
    """Run Go without C and without fetching another Go; None if it took too long."""
    environment = {
        **os.environ,
        "CGO_ENABLED": "0",
        "GOTOOLCHAIN": "local",
        "GOFLAGS": "-modcacherw -buildvcs=false",
        "GOCACHE": str(CACHE / "cache"),
        "GOMODCACHE": str(CACHE / "modules"),
    }
    try:
        return subprocess.run(
            command, cwd=SOURCES, env=environment, timeout=bound_s, check=False, capture_output=True, text=True
        )
    except subprocess.TimeoutExpired:
        return None


class PointsProcess:
    """The program as a process, which says where it listens.

    Args:
        program: what `built` answers.
        database: URL of its database.
        coordinator: where it announces itself.
        log: where its standard error goes; appended to.
    """

    def __init__(self, program: Path, *, database: str, coordinator: str, log: Path) -> None:
        self._command = [str(program), "-database", database, "-coordinator", coordinator]
        self._log = log
        self._process: asyncio.subprocess.Process | None = None
        self.address = ""

    async def start(self) -> None:
        """Start it and wait until it listens."""
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._command, stdout=asyncio.subprocess.PIPE, stderr=log, env=dict(os.environ)
            )
        assert self._process.stdout is not None
        line = await asyncio.wait_for(self._process.stdout.readline(), START_BOUND_S)
        assert line.startswith(b"listening on "), self._log.read_text()
        self.address = line.decode().split()[-1]

    async def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send it a signal and wait for its end; answers its exit code. It may have ended before."""
        process, self._process = self._process, None
        if process is None:
            return 0
        process.send_signal(number)
        return await asyncio.wait_for(process.wait(), START_BOUND_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """What a coordinator says about a call, the same for all calls of one step."""

    saga_id: str
    step: str = "spend"
    ledger: str = "elsewhere"
    kind: str = "compensatable"
    target: str = "same"
    age: timedelta = timedelta()

    def of(self, direction: str) -> list[tuple[str, str]]:
        """The metadata of one call of the step."""
        key, action_key = f"{self.saga_id}/{self.step}/{direction}", f"{self.saga_id}/{self.step}/action"
        metadata = [
            ("idempotency-key", key),
            ("amends-key-uuid", str(key_uuid(self.ledger, key))),
            ("amends-ledger", self.ledger),
            ("amends-saga-id", self.saga_id),
            ("amends-step", self.step),
            ("amends-kind", self.kind),
            ("amends-direction", direction),
            ("amends-attempt", "1"),
            ("amends-step-time", (datetime.now(UTC) - self.age).isoformat()),
        ]
        if direction != "action":
            metadata += [
                ("amends-action-key", action_key),
                ("amends-action-key-uuid", str(key_uuid(self.ledger, action_key))),
            ]
        if direction == "compensation":
            metadata.append(("amends-action-target", self.target))
        return metadata


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A call that did not succeed: its code, and whether the trailers say that it never will."""

    code: grpc.StatusCode
    sealed: bool


class Step:
    """Calls the participant for one step of one saga, as a coordinator would and in any order."""

    def __init__(self, channel: grpc.aio.Channel, metadata: Metadata) -> None:
        self._stub, self._metadata = PointsServiceStub(channel), metadata

    async def spend(self, count: int = 10, *, customer: str = "ann") -> SpendResponse | Refused:
        """The action."""
        request = SpendRequest(customer_id=customer, point_count=count)
        return await _outcome(self._stub.Spend(request, metadata=self._metadata.of("action"), timeout=CALL_BOUND_S))

    async def unmarked(self) -> SpendResponse | Refused:
        """The action, called by somebody who is no coordinator."""
        return await _outcome(self._stub.Spend(SpendRequest(), timeout=CALL_BOUND_S))

    async def give_back(self) -> GiveBackResponse | Refused:
        """The compensation."""
        metadata = self._metadata.of("compensation")
        return await _outcome(self._stub.GiveBack(GiveBackRequest(), metadata=metadata, timeout=CALL_BOUND_S))

    async def find(self) -> SpendResponse | Refused:
        """The lookup."""
        metadata = self._metadata.of("lookup")
        return await _outcome(self._stub.FindSpend(FindSpendRequest(), metadata=metadata, timeout=CALL_BOUND_S))


async def _outcome(call: Awaitable[Response]) -> Response | Refused:
    try:
        return await call
    except grpc.aio.AioRpcError as refusal:
        trailers = {str(key): value for key, value in refusal.trailing_metadata() or ()}
        return Refused(code=refusal.code(), sealed=trailers.get("amends-sealed") == "1")
