"""The operator's page as it is lived: `amends deadletter` and `amends saga` against a real coordinator."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from amends.cli.app import app
from tests.scenarios.test_people import NO, begun, saga_of

if TYPE_CHECKING:
    from pathlib import Path

    from tests.scenarios.desk import Desk

pytestmark = pytest.mark.scenario


async def run(desk: Desk, *command: str) -> str:
    """Run a command beside the coordinator, as a person does; what it prints."""
    arguments = [*command, "--coordinator", desk.coordinator.address]
    done = await asyncio.to_thread(CliRunner().invoke, app, arguments)
    assert done.exit_code == 0, done.stderr
    return done.stdout


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
