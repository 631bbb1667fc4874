"""The demo's processes: one that ends by itself is reported with what it said, and none is left behind."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shop.demo.errors import DemoFailedError
from shop.demo.processes import start_child, stop_children
from shop.demo.stage import fresh_stage
from tests.waiting import eventually_blocking


def test_a_process_that_ends_by_itself_is_reported(tmp_path: Path) -> None:
    """The failure names the process, its exit code and its last words."""
    child = start_child("broken", ["shop.process", "nonsense"], log=tmp_path / "broken.log", environment=os.environ)
    eventually_blocking(lambda: child.process.poll() is not None, what="the process ends by itself", bound_s=30)
    with pytest.raises(DemoFailedError, match=r"broken ended by itself with code 2(.|\n)*invalid choice: 'nonsense'"):
        child.check()
    assert stop_children([child]) == ()


def test_a_running_process_is_stopped(tmp_path: Path) -> None:
    """The service is told to stop, and ends cleanly."""
    options = ["shop.process", "inventory", "--coordinator", "127.0.0.1:1", "--data", str(tmp_path)]
    child = start_child("inventory", options, log=tmp_path / "inventory.log", environment=os.environ)
    try:
        eventually_blocking((tmp_path / "inventory.db").exists, what="the service has opened its database", bound_s=30)
    finally:
        stop_children([child])
    assert child.process.returncode is not None


async def test_the_stage_leaves_no_folder_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every run has a folder of its own, which goes with it; also when the run fails."""
    monkeypatch.delenv("KEEP", raising=False)
    folders: list[Path] = []

    async def failing_run() -> None:
        async with fresh_stage() as stage:
            folders.append(stage.data)
            assert stage.data.is_dir()
            stage.kill_coordinator()

    with pytest.raises(DemoFailedError, match="no coordinator"):
        await failing_run()
    assert not folders[0].exists()
