"""`amends saga watch` as a process of its own, in a pipe and on a terminal, while the coordinator restarts."""

from __future__ import annotations

import asyncio
import os
import pty
import re
import signal
import sys
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from scenario.v1.scenario_pb2 import ScenarioInput
from tests.scenarios.inside import inside
from tests.scenarios.raw import Reply, raw_steps
from tests.scenarios.sagas import steps
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from tests.scenarios.inside import Inside
    from tests.scenarios.raw import RawSteps

pytestmark = pytest.mark.scenario

BOUND_S = 60
HELD = Reply(delay_s=60)
CONTROL = re.compile(r"\x1b\[[?\d;]*[A-Za-z]")
SAGA = steps("a", "b", attempt_timeout=timedelta(seconds=30))


class Terminal:
    """The command on a terminal of its own."""

    def __init__(self, screen: int) -> None:
        self._drawn = ""
        self._screen = screen
        asyncio.get_running_loop().add_reader(screen, self._read)

    @property
    def seen(self) -> str:
        """Everything that was drawn, one over the other, without colours."""
        return CONTROL.sub("", self._drawn)

    def _read(self) -> None:
        try:
            self._drawn += os.read(self._screen, 65_536).decode(errors="replace")
        except OSError:  # the other end is closed
            self.close()

    def close(self) -> None:
        """Look at it no more."""
        asyncio.get_running_loop().remove_reader(self._screen)


@asynccontextmanager
async def on_a_terminal(*arguments: str) -> AsyncGenerator[tuple[Terminal, asyncio.subprocess.Process]]:
    """`amends saga watch` with these arguments; ended if it hasn't by itself."""
    screen, inner = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120", "LINES": "30"}
    command = [sys.executable, "-m", "amends.cli", "saga", "watch", *arguments]
    process = await asyncio.create_subprocess_exec(
        *command, stdin=inner, stdout=inner, stderr=inner, env=environment, start_new_session=True
    )
    os.close(inner)
    terminal = Terminal(screen)
    try:
        yield terminal, process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        terminal.close()
        os.close(screen)


@asynccontextmanager
async def coordinator(data: Path, participant: RawSteps, port: int = 0) -> AsyncGenerator[Inside]:
    """A coordinator that knows the participant; the next one on its port goes on with its ledger."""
    async with inside(data, port=port) as found:
        await found.announce("raw", participant.address)
        yield found


def port_of(found: Inside) -> int:
    """Where it listens."""
    return int(found.address.rpartition(":")[2])


async def test_in_a_pipe_it_tells_every_change_to_the_end(tmp_path: Path) -> None:
    """The coordinator restarts meanwhile; each change has one line, and the exit code is that of a committed saga."""
    async with raw_steps({"b": [HELD, Reply()]}) as participant:
        async with coordinator(tmp_path, participant) as first:
            await first.client.start(SAGA, ScenarioInput(), saga_id="w")
            await eventually(lambda: bool(participant.calls("b/action")), what="b is called")
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "amends.cli", "saga", "watch", "w", "--coordinator", first.address),
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
            assert process.stdout is not None
            line = await asyncio.wait_for(process.stdout.readline(), BOUND_S)
        async with coordinator(tmp_path, participant, port_of(first)):
            rest, said = await asyncio.wait_for(process.communicate(), BOUND_S)
    told = [each.split("  ")[1:4] for each in (line + rest).decode().splitlines()]
    assert told[0][0] == "w"
    assert [each for each in told if each[0] == "a"] == [["a", "action", "SUCCEEDED"]]
    assert told.count(["b", "action", "SUCCEEDED"]) == 1
    assert [each[0] for each in told].count("RUNNING") == 1
    assert told[-1][0] == "COMMITTED"
    assert said.decode() == "the coordinator doesn't answer; reconnecting ...\n"
    assert process.returncode == 0


async def test_on_a_terminal_it_is_drawn_live(tmp_path: Path) -> None:
    """One saga's tree grows until it ends, over a restart; a list shows bars and what appears, until Ctrl-C."""
    async with AsyncExitStack() as stack:
        participant = await stack.enter_async_context(raw_steps({"b": [HELD, Reply()]}))
        async with coordinator(tmp_path, participant) as first:
            address = ["--coordinator", first.address]
            table, listing = await stack.enter_async_context(on_a_terminal("--state", "running", *address))
            await eventually(lambda: "no sagas" in table.seen, what="an empty list", bound_s=BOUND_S)
            await first.client.start(SAGA, ScenarioInput(), saga_id="w-1")
            tree, watching = await stack.enter_async_context(on_a_terminal("w-1", *address))
            await eventually(lambda: "█████░░░░░ 1/2" in table.seen, what="the saga with its bar", bound_s=BOUND_S)
            await eventually(lambda: "b  action  PENDING" in tree.seen, what="the tree", bound_s=BOUND_S)
        await eventually(lambda: "reconnecting" in tree.seen, what="the outage of the tree", bound_s=BOUND_S)
        await eventually(lambda: "reconnecting" in table.seen, what="the outage of the list", bound_s=BOUND_S)
        async with coordinator(tmp_path, participant, port_of(first)):
            assert await asyncio.wait_for(watching.wait(), BOUND_S) == 0
            await eventually(lambda: "w-1  scenario-a-b  COMMITTED" in tree.seen, what="the end", bound_s=BOUND_S)
            await eventually(lambda: table.seen.count("no sagas") > 1, what="nothing runs any more", bound_s=BOUND_S)
            listing.send_signal(signal.SIGINT)
            assert await asyncio.wait_for(listing.wait(), BOUND_S) == 0
        assert "Traceback" not in tree.seen + table.seen
