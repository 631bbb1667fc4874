"""The page on services that know nothing of amends: what it tells its reader to type runs and prints what it shows."""

from __future__ import annotations

import os
import socket
import subprocess
from contextlib import ExitStack, closing, contextmanager
from typing import TYPE_CHECKING

import pytest

from amends_coordinator.participants_file import read_participants
from tests.docs.pages import CHECKOUT, Command, commands, named_files
from tests.docs.test_first_saga import COMMAND_BOUND_S, Place, listening
from tests.waiting import eventually_blocking

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

PAGE = CHECKOUT / "docs" / "participants.md"
THERE = "localhost:7300"


def free_port() -> int:
    """A port that nobody has just now."""
    with closing(socket.create_server(("127.0.0.1", 0))) as found:
        port: int = found.getsockname()[1]
        return port


@contextmanager
def somebody_elses(place: Place, command: Command) -> Generator[None]:
    """A server that is not ours and knows no manners: it is killed at the end."""
    process = subprocess.Popen(place.words(command), cwd=place.folder, env=place.environment)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def answers(port: int) -> bool:
    """Whether somebody listens there."""
    try:
        socket.create_connection(("localhost", port), timeout=1).close()
    except OSError:
        return False
    return True


@pytest.mark.slow
def test_the_example_runs_as_the_page_says(tmp_path: Path) -> None:
    """A service that knows nothing of us is a step of a saga that commits."""
    port = free_port()
    environment = {**os.environ, "AMENDS_PORT": "0", "NO_COLOR": "1", "COLUMNS": "200"}
    place = Place(tmp_path, environment)
    for name, text in named_files(PAGE).items():
        (tmp_path / name).write_text(text.replace(THERE, f"localhost:{port}"))
    generate, dev, server, add, listing, send = (
        Command(each.line.replace(THERE, f"localhost:{port}"), each.output.replace(THERE, f"localhost:{port}"))
        for each in commands(PAGE)
    )
    assert place.run(generate) == generate.output
    with ExitStack() as stack:
        log = tmp_path / "coordinator.log"
        stack.enter_context(place.running(dev, log))
        stack.enter_context(somebody_elses(place, server))
        eventually_blocking(lambda: listening(log), what="the coordinator listens", bound_s=COMMAND_BOUND_S)
        eventually_blocking(lambda: answers(port), what="the service listens", bound_s=COMMAND_BOUND_S)
        address = log.read_text().removeprefix("listening on ").partition(";")[0]
        environment["AMENDS_COORDINATOR"] = address
        program = tmp_path / "send.py"
        program.write_text(program.read_text().replace("localhost:7070", address))
        assert place.run(add) == add.output
        shown = [line.split() for line in place.run(listing).splitlines()]
        assert shown == [line.split() for line in listing.output.splitlines()]
        assert place.run(send) == send.output


def test_the_example_of_a_file_is_one(tmp_path: Path) -> None:
    """Every key that the page shows is read, but for the descriptors, which aren't there."""
    text = PAGE.read_text("utf-8").partition("```toml\n")[2].partition("```")[0]
    lines = (line for line in text.splitlines() if not line.startswith("descriptors"))
    (tmp_path / "participants.toml").write_text("\n".join(lines))
    (parcels,) = read_participants(str(tmp_path / "participants.toml"), payload_limit_bytes=1_024)
    assert (parcels.participant, parcels.connection.capacity) == ("parcels", 16)
