"""The README's first saga, typed as the README says and run with its own commands, in real processes."""

from __future__ import annotations

import asyncio
import os
import shlex
import subprocess
import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc.aio
import pytest

from amends.v1.registry_service_pb2 import ListParticipantsRequest
from amends.v1.registry_service_pb2_grpc import RegistryServiceStub
from tests.docs.pages import README, Command, commands, missing_from, named_files, same_in_every_run
from tests.waiting import eventually_blocking

ADDRESS = "localhost:7070"
PROGRAMS = Path(sys.executable).parent
MOST_LINES_OF_PYTHON = 40
COMMAND_BOUND_S = 60.0


@dataclass(frozen=True, slots=True)
class Place:
    """The reader's folder, with the environment of the reader's shell."""

    folder: Path
    environment: dict[str, str]

    def run(self, command: Command) -> str:
        """Run a command to its end; what it printed."""
        done = subprocess.run(
            self.words(command),
            cwd=self.folder,
            env=self.environment,
            timeout=COMMAND_BOUND_S,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{command.line}\n{done.stdout}{done.stderr}"
        assert not done.stderr
        return done.stdout

    @contextmanager
    def running(self, command: Command, log: Path) -> Generator[subprocess.Popen[bytes]]:
        """Run a command beside the others, as `&` does; it is told to stop at the end, and must end well."""
        with log.open("wb") as said:
            process = subprocess.Popen(
                self.words(command), cwd=self.folder, env=self.environment, stdout=said, stderr=said
            )
        try:
            yield process
            process.terminate()
            assert process.wait(COMMAND_BOUND_S) == 0, log.read_text()
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()

    def words(self, command: Command) -> list[str]:
        """The command with its program in this environment."""
        program, *arguments = shlex.split(command.line.rstrip("& "))
        return [str(PROGRAMS / program), *arguments]


def listening(log: Path) -> bool:
    """Whether a coordinator has said where it listens."""
    return "Ctrl-C ends it" in log.read_text()


def announced(address: str) -> bool:
    """Whether the theatre is known to the coordinator."""

    async def names() -> set[str]:
        async with grpc.aio.insecure_channel(address) as channel:
            answer = await RegistryServiceStub(channel).ListParticipants(ListParticipantsRequest(), timeout=10)
            return {participant.name for participant in answer.participants}

    return "theatre" in asyncio.run(names())


@pytest.mark.slow
def test_first_saga_runs_as_the_readme_says(tmp_path: Path) -> None:
    """S4, S9: typed from the README, it prints what the README shows; started again, it answers the same."""
    environment = {**os.environ, "AMENDS_PORT": "0", "COLUMNS": "200", "NO_COLOR": "1", "PYTHONUNBUFFERED": "1"}
    files, typed = named_files(README), commands(README)
    generate, check, dev, theatre, buy, get = typed
    assert [command.in_background for command in typed] == [False, False, True, True, False, False]
    place = Place(tmp_path, environment)
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert place.run(generate) == generate.output
    assert not missing_from(same_in_every_run(check.output), same_in_every_run(place.run(check)))

    with ExitStack() as stack:
        log = tmp_path / "coordinator.log"
        stack.enter_context(place.running(dev, log))
        eventually_blocking(lambda: listening(log), what="the coordinator listens", bound_s=COMMAND_BOUND_S)
        address = log.read_text().removeprefix("listening on ").partition(";")[0]
        environment["AMENDS_COORDINATOR"] = address
        for name in ("theatre.py", "buy.py"):
            # The one change: the test's coordinator listens on a free port.
            assert files[name].count(ADDRESS) == 1
            (tmp_path / name).write_text(files[name].replace(ADDRESS, address))
        stack.enter_context(place.running(theatre, tmp_path / "theatre.log"))
        eventually_blocking(lambda: announced(address), what="the theatre is announced", bound_s=COMMAND_BOUND_S)

        assert place.run(buy) == buy.output
        assert same_in_every_run(place.run(get)) == same_in_every_run(get.output)
        assert place.run(buy) == buy.output, "an id runs once, and is answered again"
        assert same_in_every_run(log.read_text()) == same_in_every_run(dev.output)


def test_first_saga_is_as_short_as_it_claims() -> None:
    """What a newcomer has to type: 40 lines of Python."""
    python = [text for name, text in named_files(README).items() if name.endswith(".py")]
    assert sum(bool(line.strip()) for text in python for line in text.splitlines()) <= MOST_LINES_OF_PYTHON


def test_first_saga_passes_the_type_checker(tmp_path: Path) -> None:
    """Fully typed means that the first thing a reader writes passes mypy in strict mode."""
    for name, text in named_files(README).items():
        (tmp_path / name).write_text(text)
    Place(tmp_path, dict(os.environ)).run(commands(README)[0])
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--cache-dir=.mypy_cache", "theatre.py", "buy.py"],
        cwd=tmp_path,
        timeout=COMMAND_BOUND_S,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
