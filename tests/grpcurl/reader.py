"""A person who types docs/grpcurl.md: `sh` blocks in a first terminal, `console` blocks in one beside it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING

import grpc

from amends.v1.registry_service_pb2 import ListParticipantsRequest, ListParticipantsResponse
from tests.docs.pages import CHECKOUT, named_files
from tests.docs.test_third_party_page import free_port
from tests.waiting import eventually_blocking

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

PAGE = CHECKOUT / "docs" / "grpcurl.md"
PROGRAMS = Path(sys.executable).parent
COMMAND_BOUND_S = 60.0
PORTS = ("7070", "7200")

_BLOCK = re.compile(r"^```(?P<kind>sh|console)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_BEGUN = re.compile(r"shop\.process (\w+)")
_ENDED = re.compile(r"\$(\w+)")

# What differs between two runs: times, ports, and the ids and names that services and the coordinator make up.
_DIFFERS = (
    (re.compile(r'"\d{4}-\d\d-\d\dT[\d:.]+Z"'), "TIME"),
    (re.compile(r'"node": "[^"]*"'), "NODE"),
    (re.compile(r"\b127\.0\.0\.1:\d+\b"), "ADDRESS"),
    (re.compile(r"\b(order|res|auth|parcel|charge|letter)-[0-9a-f]{12}\b"), r"\1-ID"),
    (re.compile(r"\b([0-9a-f]{16}|[0-9a-f]{32}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})\b"), "ID"),
    (re.compile(r'"writeCount": "\d+"'), "COUNT"),
    (re.compile(r"\s+"), " "),
)


@dataclass(frozen=True, slots=True)
class Typed:
    """Something that the page has its reader type.

    Attributes:
        text: it.
        output: what the page says it prints.
        in_first_terminal: with the processes that stay; what they say isn't shown.
    """

    text: str
    output: str = ""
    in_first_terminal: bool = False


def typed(text: str) -> list[Typed]:
    """All that a page has its reader type, in order."""
    return [one for block in _BLOCK.finditer(text) for one in _of_block(block["kind"], block["text"])]


def comparable(output: str) -> list[str]:
    """An output's lines, without what differs between two runs."""
    lines = output.splitlines()
    for pattern, replacement in _DIFFERS:
        lines = [pattern.sub(replacement, line) for line in lines]
    return [line.strip() for line in lines if line.strip()]


def not_printed(shown: list[str], printed: list[str]) -> list[str]:
    """The first lines that the page shows together and that were not printed so, or that it doesn't show.

    Args:
        shown: the page's lines; one with `…` stands for lines that it leaves out.
        printed: what came out.
    """
    at = 0
    parts = [part.splitlines() for part in "\n".join(shown).split("…")]
    for number, part in enumerate(parts):
        wanted = [line for line in part if line]
        places = range(at, len(printed) - len(wanted) + 1) if number else range(1)
        found = next((place for place in places if printed[place : place + len(wanted)] == wanted), None)
        if found is None:
            return wanted
        at = found + len(wanted)
    return [] if shown[-1:] == ["…"] else printed[at:]


def _of_block(kind: str, text: str) -> Iterator[Typed]:
    if kind == "sh":
        yield Typed(text, in_first_terminal=True)
        return
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        line, _, output = part.partition("\n")
        yield Typed(line, output)


@dataclass(slots=True)
class Reader:
    """The reader's folder and terminals.

    Args:
        folder: theirs.
        environment: of their shells.
        ports: the ports that the page names, with those that are used here.
    """

    folder: Path
    environment: dict[str, str]
    ports: dict[str, str]
    _first: subprocess.Popen[bytes]
    _log: Path
    _there: set[str] = field(default_factory=set[str])
    _beside: list[tuple[Typed, subprocess.Popen[str]]] = field(
        default_factory=list[tuple[Typed, subprocess.Popen[str]]]
    )

    @property
    def address(self) -> str:
        """Where the coordinator listens."""
        return f"localhost:{self.ports[PORTS[0]]}"

    def type(self, command: Typed) -> str | None:
        """Type it; what it printed, or None for what goes on beside."""
        text = self.here(command.text)
        if command.in_first_terminal:
            self._type_in_first(text)
            return None
        process = subprocess.Popen(
            ["bash", "-c", text.removesuffix("&")],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if text.endswith("&"):
            self._beside.append((command, process))
            return None
        return self._output(process)

    def what_went_on_beside(self) -> Iterator[tuple[Typed, str]]:
        """The commands that went on beside the others, which have to end now, with what they printed."""
        return ((command, self._output(process)) for command, process in self._beside)

    def here(self, text: str) -> str:
        """A text of the page with the ports that are used here."""
        for shown, used in self.ports.items():
            text = text.replace(shown, used)
        return text

    def _type_in_first(self, text: str) -> None:
        """The page's reader sees in the coordinator's output who is there; here it is asked."""
        assert self._first.stdin is not None
        self._first.stdin.write(text.encode())
        self._first.stdin.flush()
        killing = "".join(line for line in text.splitlines() if line.startswith("kill "))
        self._there = (self._there | set(_BEGUN.findall(text))) - set(_ENDED.findall(killing))
        with grpc.insecure_channel(self.address) as channel:
            eventually_blocking(
                lambda: announced(channel) == self._there,
                what=f"{sorted(self._there)} are there, see {self._log}",
                bound_s=COMMAND_BOUND_S,
            )

    @staticmethod
    def _output(process: subprocess.Popen[str]) -> str:
        try:
            return process.communicate(timeout=COMMAND_BOUND_S)[0]
        finally:
            process.kill()


def announced(channel: grpc.Channel) -> set[str]:
    """The participants that are there; none while nobody answers."""
    listing: grpc.UnaryUnaryMultiCallable[ListParticipantsRequest, ListParticipantsResponse] = channel.unary_unary(
        "/amends.v1.RegistryService/ListParticipants",
        request_serializer=ListParticipantsRequest.SerializeToString,
        response_deserializer=ListParticipantsResponse.FromString,
    )
    try:
        answer = listing(ListParticipantsRequest(), timeout=5)
    except grpc.RpcError:
        return set()
    return {participant.name for participant in answer.participants if participant.instances}


@contextmanager
def reader(folder: Path, grpcurl: Path) -> Generator[Reader]:
    """A reader with grpcurl; at the end everything that runs in the first terminal is ended."""
    ports = {shown: str(free_port()) for shown in PORTS}
    environment = {
        **os.environ,
        "PATH": os.pathsep.join((str(grpcurl.parent), str(PROGRAMS), os.environ["PATH"])),
        "AMENDS_PORT": ports[PORTS[0]],
        "AMENDS_COORDINATOR": f"localhost:{ports[PORTS[0]]}",
        "NO_COLOR": "1",
    }
    for name, text in named_files(PAGE).items():
        (folder / name).write_text(text)
    log = folder / "first-terminal.log"
    with log.open("wb") as said:
        first = _terminal(folder, environment, said)
    with first:
        try:
            yield Reader(folder, environment, ports, first, log)
        finally:
            os.killpg(first.pid, signal.SIGTERM)


def _terminal(folder: Path, environment: dict[str, str], said: IO[bytes]) -> subprocess.Popen[bytes]:
    """A shell whose processes are a group of their own, so that they can be ended together."""
    return subprocess.Popen(
        ["bash", "--norc"],
        cwd=folder,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=said,
        stderr=said,
        start_new_session=True,
    )
