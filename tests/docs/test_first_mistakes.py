"""The mistakes that everybody makes with the first saga: each is answered by a sentence that says what to do.

Those that a servicer or a saga is refused for are beside the code that refuses them (`sdk_participant`,
`sdk_initiator`); here stand those that somebody makes who types the README, in the processes that he would run.
"""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from amends import ParticipantServer, SagaClient
from tests.docs.pages import README, named_files
from tests.integration.participant.calls import Inventory
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

PROGRAMS = Path(sys.executable).parent
FILES = named_files(README)
PROTO = FILES["tickets.proto"]
BOUND_S = 60.0


def misspell_field(proto: str) -> str:
    """An annotation's field that doesn't exist."""
    return proto.replace("compensation:", "compensate:")


def misspell_import(proto: str) -> str:
    """Our annotations under another name."""
    return proto.replace("amends/v1/annotations", "amends/annotations")


def forget_import(proto: str) -> str:
    """The option used, and not imported."""
    return proto.replace('import "amends/v1/annotations.proto";', "")


def misspell_compensation(proto: str) -> str:
    """A compensation that the service doesn't have."""
    return proto.replace('"Release"', '"Relase"')


@pytest.mark.parametrize(
    ("mistake", "advice"),
    [
        (misspell_field, "has no field 'compensate'; it has: compensation, lookup, timeout, guarantee,"),
        (misspell_import, 'amends\' own options are imported as "amends/v1/annotations.proto"'),
        (forget_import, 'needs this line above: import "amends/v1/annotations.proto";'),
        (misspell_compensation, "says compensation: 'Relase', but the service has no such method; did you mean"),
    ],
)
def test_mistakes_in_the_proto(mistake: Callable[[str], str], advice: str, tmp_path: Path) -> None:
    """`amends generate` names the place and what would be right, and writes nothing."""
    (tmp_path / "tickets.proto").write_text(mistake(PROTO))
    said = refused(tmp_path, "amends", "generate", "tickets.proto")
    assert advice in said
    assert "tickets.proto:" in said
    assert [path.name for path in tmp_path.iterdir()] == ["tickets.proto"]


def test_a_proto_that_is_not_there(tmp_path: Path) -> None:
    """`amends generate` says where it looked, and what it wants where nothing is named."""
    said = refused(tmp_path, "amends", "generate", "ticket.proto")
    assert said == "no such file: ticket.proto\nLooked in the working directory.\n"
    assert "for example: amends generate tickets.proto" in refused(tmp_path, "amends", "generate")


def test_a_protoc_that_does_not_find_our_annotations(tmp_path: Path) -> None:
    """Nobody can change what a protoc of the user's own says; the folder that it needs is one command away."""
    (tmp_path / "tickets.proto").write_text(PROTO)
    protoc = ["python", "-m", "grpc_tools.protoc", "-I.", "--python_out=.", "tickets.proto"]
    assert "amends/v1/annotations.proto: File not found." in refused(tmp_path, *protoc)
    folder = run(tmp_path, "amends", "generate", "--show-include").stdout.strip()
    done = run(tmp_path, *protoc, f"-I{folder}")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("mistakes", "said"),
    [
        ({"Hold(seat=ticket.input.seat)": "Hold(seet=ticket.input.seat)"}, "has no field 'seet': did you mean 'seat'?"),
        (
            {"ticket.input.price": "ticket.input.prise"},
            "BuyTicket has no field 'prise': did you mean 'price'?",
        ),
        ({"Hold(seat=ticket.input.seat)": "Hold(seat=ticket.input.price)"}, "but saga.input.price is of type integer"),
        ({"pb.PayRequest, pb.PayResponse": "pb.HoldRequest, pb.PayResponse"}, "takes tickets.v1.PayRequest, not "),
        ({'ticket.step("hold", Hold(seat=ticket.input.seat))': 'ticket.step("hold", Hold)'}, "without its request"),
        ({'ticket.pivot("pay", ': 'ticket.step("pay", '}, "step 'pay' can't be undone; call compensated_by(...)"),
    ],
)
def test_mistakes_in_the_saga(tickets: Path, mistakes: dict[str, str], said: str) -> None:
    """`amends check` tells them in a sentence, before anything runs and without a coordinator."""
    (tickets / "buy.py").write_text(changed(FILES["buy.py"], mistakes))
    answer = refused(tickets, "amends", "check", "buy.py")
    assert said in answer
    assert "Traceback" not in answer


@pytest.mark.slow
async def test_everything_in_the_wrong_order(tickets: Path) -> None:
    """Buy first, without a coordinator; then without the theatre; then with one whose `Hold` forgot to return. Whoever
    sees it says it at once, everything goes on by itself as soon as it is mended, and an id runs once.
    """
    port = free_port()
    told = Told(tickets, f"localhost:{port}")
    with ExitStack() as stack:
        with told.program("buy.py"):
            await told.says("buy.py", f"no coordinator answers at localhost:{port}; start one with `amends dev`")
        stack.enter_context(told.command("dev", "amends", "dev", "--port", str(port)))
        await told.says("dev", "listening on ")
        buy = stack.enter_context(told.program("buy.py"))
        await told.says("dev", "ticket-1  hold → Hold  waits  no participant announces tickets.v1.TicketService")
        await told.says("buy.py", "saga 'ticket-1' can't get past step 'hold' yet: no participant announces")
        with told.program("theatre.py", {"        return pb.HoldResponse()": "        pb.HoldResponse()"}):
            forgot = "returned None instead of tickets.v1.HoldResponse: did it forget to return?"
            await told.says("theatre.py", f"Theatre.Hold ({tickets / 'theatre.py'}:10): the handler of ")
            await told.says("theatre.py", forgot)
            await told.says("dev", forgot)
            async with SagaClient(f"localhost:{port}") as client:
                (hold,) = (await client.get("ticket-1")).intents
            assert forgot in hold.last_error
            assert "amends saga get ticket-1" in told.by("buy.py")
        stack.enter_context(told.program("theatre.py"))
        assert buy.wait(BOUND_S) == 0, told.by("buy.py")
        assert told.by("buy.py").endswith(FIRST_BUY)
        with told.program("buy.py", {'"ticket-2": 80': '"ticket-2": 81'}) as another:
            assert another.wait(BOUND_S) == 1
        assert "amends.errors.SagaIdInUseError: starting saga 'ticket-2': " in told.by("buy.py")
        assert "use a new id" in told.by("buy.py").lower()
        with told.program("buy.py", {"localhost": "http://localhost"}) as wrong:
            assert wrong.wait(BOUND_S) == 1
        assert "write host:port, for example localhost:7070" in told.by("buy.py")


async def test_a_participant_that_takes_another_participant_for_the_coordinator(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It says what to correct, also to somebody who has set up no logging."""
    async with participant("127.0.0.1:1") as other, participant(other.address):
        with caplog.at_level(logging.WARNING, "amends.participant"):
            await eventually(
                lambda: "is no amends coordinator: correct coordinator=" in caplog.text, what="a line that says so"
            )


FIRST_BUY = "ticket-1: step 'pay': the card is declined [CARD_DECLINED]\nticket-2: seat A7 is yours\n"


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the README's proto and what is generated from it."""
    folder = tmp_path_factory.mktemp("tickets")
    (folder / "tickets.proto").write_text(PROTO)
    assert run(folder, "amends", "generate", "tickets.proto").returncode == 0
    return folder


@pytest.fixture
def tickets(generated: Path, tmp_path: Path) -> Path:
    """A folder of the test's own with the README's files, generated ones included."""
    for path in generated.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


class Told:
    """What each process in a folder says, standard output and errors together."""

    def __init__(self, folder: Path, coordinator: str) -> None:
        self._folder, self._coordinator = folder, coordinator

    def by(self, name: str) -> str:
        """All that the process has said."""
        return (self._folder / f"{name}.log").read_text("utf-8")

    async def says(self, name: str, words: str) -> None:
        """Wait until the process has said these words."""
        await eventually(lambda: words in self.by(name), what=f"{name} says {words!r}", bound_s=BOUND_S)

    @contextmanager
    def program(self, name: str, mistakes: dict[str, str] | None = None) -> Generator[subprocess.Popen[bytes]]:
        """Run one of the README's programs, with these mistakes in it."""
        text = changed(FILES[name], {"localhost:7070": self._coordinator, **(mistakes or {})})
        (self._folder / name).write_text(text)
        with self.command(name, "python", name) as process:
            yield process

    @contextmanager
    def command(self, name: str, program: str, *arguments: str) -> Generator[subprocess.Popen[bytes]]:
        """Run a command beside the others; it is stopped at the end."""
        with (self._folder / f"{name}.log").open("wb") as said:
            process = subprocess.Popen(
                [PROGRAMS / program, *arguments],
                cwd=self._folder,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
                stdout=said,
                stderr=said,
            )
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def changed(text: str, mistakes: dict[str, str]) -> str:
    """A text with mistakes, each of which finds its place."""
    for right, wrong in mistakes.items():
        assert text.count(right) == 1, right
        text = text.replace(right, wrong)
    return text


def free_port() -> int:
    """A port that nobody listens on now."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        port: int = listener.getsockname()[1]
        return port


def run(folder: Path, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        [PROGRAMS / program, *arguments], cwd=folder, capture_output=True, text=True, check=False, timeout=BOUND_S
    )


def refused(folder: Path, program: str, *arguments: str) -> str:
    """What a command that fails says."""
    done = run(folder, program, *arguments)
    assert done.returncode != 0, done.stdout
    return done.stdout + done.stderr


def participant(coordinator: str) -> ParticipantServer:
    """A participant that announces itself there."""
    server = ParticipantServer("inventory", coordinator=coordinator)
    server.add(Inventory())
    return server
