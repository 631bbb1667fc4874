"""The README's "make my service a participant": its lines, applied to what was there before, do as it says."""

from __future__ import annotations

import asyncio
import os
import re
import sqlite3
import subprocess
import sys
from contextlib import asynccontextmanager, closing
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import pytest

from tests.docs.pages import README
from tests.docs.test_third_party_page import free_port
from tests.integration.participant.registry import Registry, serving_registry
from tests.participants.serving import as_step
from tests.waiting import pause

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    Pairs = Sequence[tuple[str, str]]

DIFF = re.compile(r"^In `(?P<name>seats\.\w+)`:\n\n```diff\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
DIFFS = {found["name"]: found["text"].splitlines() for found in DIFF.finditer(README.read_text("utf-8"))}
MOST_CHANGES = 20
BOUND_S = 60.0

OK, REFUSED = grpc.StatusCode.OK, grpc.StatusCode.FAILED_PRECONDITION
SEAT = b"\n\x02A7"
"""A request for seat A7, in bytes."""


def text_of(name: str, leaving_out: str) -> str:
    """A file before the change (leaving out "+") or after it (leaving out "-")."""
    return "".join(f"{line[1:]}\n" for line in DIFFS[name] if not line.startswith(leaving_out))


def changes(lines: list[str]) -> int:
    """How many lines are changed: one that is replaced counts once, and so does one that is new or gone."""
    blocks = (list(block) for changed, block in groupby(lines, key=lambda line: line[:1] in "+-") if changed)
    return sum(max(sum(line[0] == sign for line in block) for sign in "+-") for block in blocks)


def test_it_is_as_little_as_it_claims() -> None:
    """Fewer than twenty lines, the proto's among them."""
    assert set(DIFFS) == {"seats.py", "seats.proto"}
    assert sum(map(changes, DIFFS.values())) < MOST_CHANGES


@asynccontextmanager
async def seats(folder: Path, text: str, *, coordinator: int) -> AsyncGenerator[grpc.aio.Channel]:
    """The service of that text as a process; told to stop at the end."""
    port = free_port()
    program = text.replace("localhost:7070", f"127.0.0.1:{coordinator}").replace(":7101", f":{port}")
    (folder / "seats.py").write_text(program.replace("port=7101", f"port={port}"))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "seats.py", cwd=folder, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    )
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield channel
    finally:
        process.terminate()
        await asyncio.wait_for(process.wait(), BOUND_S)


async def answer(channel: grpc.aio.Channel, method: str, metadata: Pairs = ()) -> grpc.StatusCode:
    """What a call about seat A7 is answered with, once the service is up."""
    stub: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(f"/seats.SeatService/{method}")
    call = stub(SEAT, metadata=tuple(metadata), timeout=BOUND_S, wait_for_ready=True)
    return await call.code()


async def with_a_seat(folder: Path) -> None:
    """Put seat A7 into the table once the service has made it."""
    while True:
        try:
            with closing(sqlite3.connect(folder / "seats.db")) as connection, connection:
                connection.execute("INSERT INTO seat VALUES ('A7', 0)")
        except sqlite3.OperationalError:
            await pause()
        else:
            return


@pytest.mark.slow
async def test_a_service_takes_part(tmp_path: Path) -> None:
    """S2, S4, F04: before, a hold that is repeated is refused and whoever releases a seat takes it from its buyer;
    afterwards neither, on the database that was there.
    """
    (tmp_path / "seats.proto").write_text(text_of("seats.proto", "-"))
    generated = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-m", "amends.cli", "generate", "seats.proto"], cwd=tmp_path, check=False
    )
    assert generated.returncode == 0
    registry = Registry()
    async with asyncio.timeout(BOUND_S), serving_registry(registry) as coordinator:
        async with seats(tmp_path, text_of("seats.py", "+"), coordinator=coordinator) as channel:
            await with_a_seat(tmp_path)
            assert [await answer(channel, name) for name in ("Hold", "Hold", "Release")] == [OK, REFUSED, OK]
        async with seats(tmp_path, text_of("seats.py", "-"), coordinator=coordinator) as channel:
            await registry.registered.get()
            hold, release = as_step("hold"), as_step("hold", direction="compensation")
            assert [await answer(channel, "Hold", hold) for _ in range(2)] == [OK, OK]
            other, never = (as_step("hold", saga_id="s-2", direction=side) for side in ("action", "compensation"))
            assert await answer(channel, "Release", never) is OK
            assert await answer(channel, "Hold", as_step("hold", saga_id="s-3")) is REFUSED, "it is still taken"
            assert [await answer(channel, "Release", release) for _ in range(2)] == [OK, OK]
            assert await answer(channel, "Hold", other) is REFUSED, "it came after its release"
            assert await answer(channel, "Hold", as_step("hold", saga_id="s-3")) is REFUSED, "a refusal stays"
            assert await answer(channel, "Hold", as_step("hold", saga_id="s-4")) is OK
