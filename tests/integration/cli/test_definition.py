"""`amends definition apply|list|get` against a real coordinator."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from amends.cli.app import app
from tests.scenarios.processes import coordinator

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable
    from pathlib import Path

    from typer.testing import Result

    Run = Callable[..., Awaitable[Result]]

MODULE = """\
from datetime import timedelta
from amends import Codes, Guarantee, Saga, method
from grpc import StatusCode
from scenario.v1.scenario_pb2 import DoRequest, DoResponse, ScenarioInput
from scenario.v1.scenario_pb2_grpc import StepServiceServicer

Do = method(StepServiceServicer.Do, DoRequest, DoResponse)
errand = Saga("errand", input=ScenarioInput, timeout=timedelta(minutes={minutes}))
errand.pivot("do", Do(name="do", amount=errand.input.amount))
"""
FAULTY = (
    MODULE
    + """
other = Saga("other", input=ScenarioInput)
other.pivot("do", Do(name="do"), guarantee=Guarantee.BARRIER, codes=Codes(added_rejected=[StatusCode.ABORTED]))
"""
)


@pytest.fixture
async def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Run]:
    """Runs a command at a coordinator of its own, in the folder that has its modules."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    process = coordinator(tmp_path)
    await process.start()

    async def command(*arguments: str) -> Result:
        at = ("--coordinator", process.address)
        return await asyncio.to_thread(lambda: CliRunner().invoke(app, ["definition", *arguments, *at]))

    yield command
    await process.stop()


async def test_applied_changed_and_applied_again(tmp_path: Path, run: Run) -> None:
    """F19: known content moves nothing; a change makes a new version, with which new sagas begin."""
    (tmp_path / "one.py").write_text(MODULE.format(minutes=1))
    (tmp_path / "two.py").write_text(MODULE.format(minutes=2))
    said = [(await run("apply", name)).stdout for name in ("one.py", "one.py", "two.py", "one.py")]
    versions = [line.split()[1].rstrip(":") for line in said]
    assert [line.partition(": ")[2] for line in said] == [
        "new\n",
        "unchanged\n",
        f"changed, new sagas begin with it (before: {versions[0]})\n",
        f"known already; new sagas still begin with the newer {versions[2]}\n",
    ]
    assert versions[0] == versions[1] == versions[3] != versions[2]
    head, newest, oldest = (await run("list")).stdout.splitlines()
    assert head.split() == ["DEFINITION", "VERSION", "STEPS", "REGISTERED"]
    assert newest.split()[:3] == ["errand", versions[2], "1"]
    assert newest.endswith("  default")
    assert (oldest.split()[1], oldest.endswith("default")) == (versions[0], False)
    shown = json.loads((await run("list", "--json", "--limit", "1")).stdout)["definitions"]
    assert [(each["version"], each["default"]) for each in shown] == [(versions[2], True)]
    nothing = await run("list", "--name", "nobody")
    assert (nothing.stdout, nothing.stderr) == ("", "no definition is called nobody\n")


async def test_of_two_definitions_of_one_name_none_is_applied(tmp_path: Path, run: Run) -> None:
    """F19: which one sagas begin with would hang on the order in which they stand, and on which is changed first."""
    other = MODULE.format(minutes=2).replace("errand", "second").replace('"second"', '"errand"')
    (tmp_path / "both.py").write_text(MODULE.format(minutes=1) + other)
    refused = await run("apply", "both.py")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert refused.stderr.startswith("both.py:errand and both.py:second are both called 'errand' and differ: ")
    assert (await run("list")).stderr == "no definitions\n"
    assert (await run("apply", "both.py:second")).stdout.endswith(": new\n")


async def test_what_is_shown_can_be_applied(tmp_path: Path, run: Run) -> None:
    """`get` shows what a definition does; its JSON is a definition file of the same version."""
    (tmp_path / "one.py").write_text(MODULE.format(minutes=1))
    version = (await run("apply", "one.py")).stdout.split()[1].rstrip(":")
    report = (await run("get", "errand")).stdout
    assert report.startswith(f"errand: fine, version {version}, 1 warning")
    assert "  do, pivot, at once\n" in report
    (tmp_path / "errand.json").write_text((await run("get", "errand", "--version", version, "--json")).stdout)
    assert (await run("apply", "errand.json")).stdout == f"errand {version}: unchanged\n"
    missing = await run("get", "nobody")
    assert (missing.exit_code, "DEFINITION_NOT_FOUND" in missing.stderr) == (1, True)


async def test_with_a_fault_in_one_none_is_registered(tmp_path: Path, run: Run) -> None:
    """All targets are checked first; the faults are those of `amends check`."""
    (tmp_path / "bad.py").write_text(FAULTY.format(minutes=1))
    done = await run("apply", "bad.py")
    assert (done.exit_code, done.stderr) == (1, "nothing was registered\n")
    assert "other: 1 fault  (bad.py:other)\n  steps[0].action.added_rejected_codes (step do): ABORTED is" in done.stdout
    assert (await run("list")).stderr == "no definitions\n"
