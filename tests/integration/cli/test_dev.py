"""`amends dev`: a real process that prints what happens, says what to do about it, and leaves nothing behind."""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from typer.testing import CliRunner

from amends import CompensationFailed, ParticipantServer, Retry, SagaClient
from amends.cli.app import app
from amends.cli.dev import playground
from scenario.v1.scenario_pb2 import ScenarioInput
from tests.scenarios.journal import Journal
from tests.scenarios.sagas import steps
from tests.scenarios.steps import ScriptedSteps
from tests.waiting import eventually, eventually_blocking

AMENDS = [sys.executable, "-c", "import sys; from amends.cli import main; sys.exit(main())"]
ONE_REFUSAL = Retry(maximum_refusal_count=1)
STOP_BOUND_S = 30.0


class Dev:
    """`amends dev` on a free port, in a folder of its own, its lines read from a file as from a pipe."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.log = folder / "dev.log"
        with self.log.open("wb") as out:
            self.process = subprocess.Popen(
                [*AMENDS, "dev", "--port", "0", *arguments], cwd=folder, stdout=out, stderr=out
            )

    @property
    def text(self) -> str:
        """All that it has printed."""
        return self.log.read_text("utf-8")

    async def says(self, words: str) -> None:
        """Wait until it has printed these words."""
        await eventually(lambda: words in self.text, what=f"{words!r} is printed", bound_s=STOP_BOUND_S)

    async def address(self) -> str:
        """Where it listens."""
        await self.says("Ctrl-C ends it")
        return self.text.removeprefix("listening on ").partition(";")[0]

    def stop(self, number: signal.Signals) -> None:
        """Tell it to stop; it must end well, and without a word."""
        self.process.send_signal(number)
        assert self.process.wait(STOP_BOUND_S) == 0, self.text
        assert "Traceback" not in self.text


@contextmanager
def dev(folder: Path, *arguments: str) -> Generator[Dev]:
    """A running one; whatever happens, its process ends."""
    started = Dev(folder, *arguments)
    try:
        yield started
    finally:
        started.process.kill()
        started.process.wait()


def script(folder: Path, text: str) -> None:
    """Say what the participant does."""
    (folder / "script.json").write_text(text)


def participant(folder: Path, coordinator: str) -> ParticipantServer:
    """A participant that does what the script says."""
    server = ParticipantServer("steps", coordinator=coordinator)
    server.add(ScriptedSteps(Journal(folder / "journal.jsonl"), folder / "script.json"))
    return server


def command(line: str) -> subprocess.CompletedProcess[str]:
    """Run a command as it was printed."""
    program, *arguments = shlex.split(line)
    assert program == "amends"
    return subprocess.run([*AMENDS, *arguments], check=False, capture_output=True, text=True, timeout=60)


def kept(folder: Path) -> list[str]:
    """The databases in a folder."""
    return [path.name for path in folder.iterdir() if ".db" in path.name]


def refused(folder: Path, *arguments: str) -> str:
    """What it says when it can't run: on standard error, in words."""
    done = subprocess.run(
        [*AMENDS, "dev", *arguments], cwd=folder, check=False, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "Traceback" not in done.stderr
    return done.stderr


async def test_each_saga_is_printed_as_it_happens(tmp_path: Path) -> None:
    """Why it waits, each call, the dead letter with the command that repairs it, the end; who comes and who goes."""
    script(tmp_path, '{"pay/action": ["reject"], "hold/compensation": ["reject"]}')
    with dev(tmp_path) as shown:
        address = await shown.address()
        async with SagaClient(address) as client:
            handle = await client.start(steps("hold", "pay", undo_retry=ONE_REFUSAL), ScenarioInput(), saga_id="t-1")
            await shown.says("t-1  hold → Do  waits  no participant announces scenario.v1.StepService just now")
            await shown.says("no participant is here: start yours; the saga goes on by itself")
            async with participant(tmp_path, address):
                assert isinstance(await handle.wait(), CompensationFailed)
                await shown.says("COMPENSATION_FAILED")
                script(tmp_path, "{}")
                repair = next(line.strip() for line in shown.text.splitlines() if "amends deadletter retry" in line)
                done = command(repair)
                assert done.returncode == 0, done.stderr
                await shown.says("t-1  COMPENSATED in ")
            await shown.says("- steps  at 127.0.0.1:")
        shown.stop(signal.SIGINT)
    assert not kept(tmp_path)
    assert "+ steps  at 127.0.0.1:" in shown.text
    assert "t-1  pay → Do  rejected  " in shown.text
    assert "t-1  needs a person  hold compensation  REFUSED  the script says no" in shown.text
    assert "pay: the script says no [SCRIPTED]" in shown.text
    assert "amends deadletter resolve t-1/hold/compensation/1 FOUND --reason" in shown.text
    assert "where FOUND is happened or undone-by-hand" in shown.text


def test_what_is_kept_and_what_is_taken(tmp_path: Path) -> None:
    """With --keep the ledger stays; a second process on it, or on the port, is told why it can't, and exits with 1."""
    with dev(tmp_path, "--keep") as shown:
        eventually_blocking(lambda: "Ctrl-C" in shown.text, what="it listens", bound_s=STOP_BOUND_S)
        port = shown.text.partition(";")[0].rpartition(":")[2]
        on_ledger, on_port = refused(tmp_path, "--keep", "--port", "0"), refused(tmp_path, "--port", port)
        shown.stop(signal.SIGTERM)
    assert "the ledger is in use: process" in on_ledger
    assert f"port {port} on 127.0.0.1 is already taken" in on_port
    assert ".amends-dev.db" in kept(tmp_path)


def test_a_ledger_that_can_not_be(tmp_path: Path) -> None:
    """A plain error without the password."""
    said = refused(tmp_path, "--ledger-url", "mysql://ada:secret@localhost/x")
    assert said.startswith("amends: ")
    assert "secret" not in said


def test_each_forgotten_ledger_has_a_name_of_its_own() -> None:
    """S2: ids that are used again under the next one are other keys to a participant that went on running."""
    with playground(keep=False, chosen="") as first, playground(keep=False, chosen="") as second:
        assert first.name != second.name
    with playground(keep=True, chosen="") as kept_one, playground(keep=False, chosen="memory:") as given:
        assert (kept_one.name, given.name, given.url) == (None, None, "memory:")


def test_two_ledgers_at_once(runner: CliRunner) -> None:
    """--keep and --ledger-url contradict each other."""
    done = runner.invoke(app, ["dev", "--keep", "--ledger-url", "memory:"])
    assert done.exit_code == 1
    assert done.stderr == "--keep and --ledger-url both say where the ledger is: give one of them.\n"
