"""`amends saga get --follow`: drawn anew on a terminal, told in lines in a pipe, and as JSON for scripts."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from amends import SagaClient
from amends.cli.app import app
from amends.v1.saga_pb2 import Saga
from scenario.v1.scenario_pb2 import ScenarioInput
from shop.orders.v1.orders_pb2 import PlaceOrder
from tests.integration.cli.api import SagaApi
from tests.integration.cli.test_dev import dev, participant, script
from tests.integration.cli.test_watching import changes
from tests.scenarios.sagas import steps
from tests.unit.cli.sagas import committed_saga, stuck_saga

AMENDS = [sys.executable, "-c", "import sys; from amends.cli import main; sys.exit(main())"]
PRESSED_IN_A_THREAD = """\
import signal, sys, threading
from amends.cli import main

def press():
    sys.stdin.readline()
    signal.pthread_kill(threading.get_ident(), signal.SIGINT)

threading.Thread(target=press, daemon=True).start()
sys.exit(main())
"""
BOUND_S = 60.0
ROWS, COLUMNS = 12, 100
CLEARED_LINE = "\x1b[2K"
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class Terminal:
    """A command on a terminal of its own."""

    def __init__(self, *arguments: str) -> None:
        self._here, there = pty.openpty()
        fcntl.ioctl(there, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        environment = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "LINES"}}
        self.process = subprocess.Popen(
            [*AMENDS, *arguments],
            stdin=there,
            stdout=there,
            stderr=there,
            env={**environment, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"},
        )
        os.close(there)
        self.text = ""

    def shows(self, words: str, *, times: int = 1) -> None:
        """Read until these words have been drawn so often."""
        until = time.monotonic() + BOUND_S
        while self.text.count(words) < times:
            assert time.monotonic() < until, self.text
            self._read(1.0)

    def ended(self) -> int:
        """Read to the end; the exit code."""
        until = time.monotonic() + BOUND_S
        while self._read(1.0):
            assert time.monotonic() < until, self.text
        return self.process.wait(BOUND_S)

    def _read(self, bound_s: float) -> bool:
        """Whether there is more to come."""
        ready, _, _ = select.select([self._here], [], [], bound_s)
        if ready:
            try:
                read = os.read(self._here, 65_536)
            except OSError:  # how Linux says that nobody has the terminal's other side open any more
                return False
            self.text += read.decode("utf-8", "replace")
        return True

    def close(self) -> None:
        """Whatever happens, the process ends."""
        self.process.kill()
        self.process.wait()
        os.close(self._here)


@contextmanager
def terminal(*arguments: str) -> Generator[Terminal]:
    """A command on a terminal."""
    shown = Terminal(*arguments)
    try:
        yield shown
    finally:
        shown.close()


def test_a_terminal_is_drawn_anew_until_ctrl_c(api: SagaApi) -> None:
    """What goes on grows without news; over an outage it stays; Ctrl-C ends it, and the last drawing is left whole."""
    begun = stuck_saga()
    begun.write_count = 1
    api.changes[begun.saga_id], api.goes_on = [begun, None, begun], {begun.saga_id}
    with terminal("saga", "get", begun.saga_id, "--follow", "--coordinator", api.address) as shown:
        shown.shows("reconnecting ...")
        shown.shows("Ctrl-C ends this", times=3)
        shown.process.send_signal(signal.SIGINT)
        assert shown.ended() == 130
    assert "Traceback" not in shown.text
    drawn, _, last = shown.text.rpartition(CLEARED_LINE)
    assert "lines above" in drawn
    assert "├──" not in drawn
    assert "├──" in last
    assert "\x1b[33m▓▓" in last
    assert "Ctrl-C" not in last


@pytest.mark.parametrize("command", [["get", "order-1043", "--follow"], ["watch", "order-1043"]])
def test_ctrl_c_is_heard_while_nothing_happens(api: SagaApi, command: list[str]) -> None:
    """The operating system may interrupt another thread than the one that waits for news, or just before it waits: that
    wakes nobody, and a saga that waits for hours brings no news.
    """
    begun = stuck_saga()
    api.changes[begun.saga_id], api.goes_on = [begun], {begun.saga_id}
    arguments = ["saga", *command, "--coordinator", api.address]
    with subprocess.Popen(
        [sys.executable, "-c", PRESSED_IN_A_THREAD, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as watching:
        assert watching.stdout is not None
        assert watching.stdout.readline()
        try:
            watching.communicate(b"now\n", timeout=BOUND_S / 6)
        finally:
            watching.kill()
    assert watching.returncode == 130


def test_a_saga_that_ends_ends_it(api: SagaApi) -> None:
    """The exit code says whether it committed."""
    end = committed_saga()
    api.changes[end.saga_id] = changes(end)
    with terminal("saga", "get", end.saga_id, "--follow", "--coordinator", api.address) as shown:
        assert shown.ended() == 0
    assert "COMMITTED" in shown.text.rpartition(CLEARED_LINE)[2]


def test_a_pipe_gets_what_changes(api: SagaApi, runner: CliRunner) -> None:
    """The same lines as `amends saga watch`, over a restart."""
    end = committed_saga()
    first, second, last = changes(end)
    api.changes[end.saga_id] = [first, None, second, last]
    followed = runner.invoke(app, ["saga", "get", end.saga_id, "--follow", "--coordinator", api.address])
    api.changes[end.saga_id] = changes(end)
    watched = runner.invoke(app, ["saga", "watch", end.saga_id, "--coordinator", api.address])
    assert (followed.exit_code, followed.stdout) == (0, watched.stdout)
    assert followed.stderr == "the coordinator doesn't answer; reconnecting ...\n"


@pytest.mark.parametrize(("state", "code"), [(Saga.STATE_COMMITTED, 0), (Saga.STATE_COMPENSATED, 1)])
def test_a_script_gets_a_line_of_json_for_each_change(
    api: SagaApi, runner: CliRunner, state: Saga.State.ValueType, code: int
) -> None:
    """Nothing else is on standard output, also over a restart, and every payload has its type."""
    end = committed_saga()
    end.state = state
    end.input.Pack(PlaceOrder(sku="teapot"))
    first, second, last = changes(end)
    api.changes[end.saga_id] = [first, None, second, None, last]
    done = runner.invoke(app, ["saga", "get", end.saga_id, "--follow", "--json", "--coordinator", api.address])
    shown = [json.loads(line) for line in done.stdout.splitlines()]
    assert [each["writeCount"] for each in shown] == ["1", "2", "3"]
    assert shown[-1]["input"] == {"@type": "type.googleapis.com/shop.orders.v1.PlaceOrder", "sku": "teapot"}
    assert (done.exit_code, done.stderr) == (code, "the coordinator doesn't answer; reconnecting ...\n" * 2)


async def test_it_is_followed_over_a_restart_of_the_coordinator(tmp_path: Path) -> None:
    """F05, L1: killed and started again, the saga goes on, and so does the drawing; at the end it names both nodes."""
    script(tmp_path, "{}")
    with ExitStack() as coordinators:
        first = coordinators.enter_context(dev(tmp_path, "--keep"))
        address = await first.address()
        again = ("--keep", "--port", address.rpartition(":")[2])
        async with SagaClient(address) as client:
            await client.start(steps("hold"), ScenarioInput(), saga_id="f-1")
            with terminal("saga", "get", "f-1", "--follow", "--coordinator", address) as shown:
                await asyncio.to_thread(shown.shows, "Ctrl-C ends this")
                first.process.kill()
                await asyncio.to_thread(shown.shows, "reconnecting ...")
                await coordinators.enter_context(dev(tmp_path, *again)).address()
                async with participant(tmp_path, address):
                    assert await asyncio.to_thread(shown.ended) == 0
    last = COLOUR.sub("", shown.text.rpartition(CLEARED_LINE)[2])
    assert "  COMMITTED  in " in last
    assert len(set(re.findall(r"  node (\S+)", last))) == 2
    assert "\nnode   " in last
