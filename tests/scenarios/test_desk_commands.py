"""The operator's page as it is lived: `amends deadletter` and `amends saga` against a real coordinator."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

import pytest

from tests.scenarios.test_people import NO, begun, saga_of

if TYPE_CHECKING:
    from pathlib import Path

    from tests.scenarios.desk import Desk

pytestmark = pytest.mark.scenario


async def run(desk: Desk, *command: str) -> str:
    """Run a command as a person does, in a process of its own; what it prints."""
    started = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", "from amends.cli import main; raise SystemExit(main())"),
        *(*command, "--coordinator", desk.coordinator.address),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    said, complained = await asyncio.wait_for(started.communicate(), 60)
    assert started.returncode == 0, complained.decode()
    return said.decode()


async def test_detect_investigate_resolve(tmp_path: Path) -> None:
    """docs/operating.md: what is parked is seen, looked into, and settled; the saga ends, with the name."""
    async with begun(tmp_path, saga_of("PR"), {"b": [NO]}) as (desk, _):
        letter = await desk.open_letter("b")
        listed = await run(desk, "deadletter", "list")
        assert "1 of StepService/Do, FAILED_PRECONDITION  REFUSED" in listed
        assert letter in listed
        tree = await run(desk, "saga", "get", "s")
        assert "attention required: 1 open dead letter" in tree
        assert "dead letter open  REFUSED  b action  " in tree
        assert letter in tree
        done = await run(
            desk,
            "deadletter",
            "resolve",
            letter,
            "happened",
            "--reason",
            "asked them",
            "--response",
            '{"effectId": "x"}',
        )
        assert "saga s is RUNNING" in done
        await desk.stands("COMMITTED")
        (entry,) = await desk.audit()
        assert f"resolved by {entry.claimed_actor}: happened" in await run(desk, "saga", "get", "s")
        assert await run(desk, "deadletter", "list") == ""


async def test_terminate_and_retry(tmp_path: Path) -> None:
    """A saga that does harm is stopped, and what is left of it is called one by one."""
    async with begun(tmp_path, saga_of("CR"), {"b": [NO]}) as (desk, steps):
        await desk.open_letter("b")
        assert "terminated; it is RUNNING" in await run(desk, "saga", "terminate", "s", "--reason", "harm")
        steps.plan["b/action"] = []
        letter = await desk.open_letter("b")
        assert "it is called again" in await run(desk, "deadletter", "retry", letter, "--reason", "mended")
        await desk.stands("COMMITTED")
