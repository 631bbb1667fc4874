"""The mistakes that everybody makes with the first saga: each is answered by a sentence that says what to do."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from amends import ParticipantServer
from tests.docs.pages import README, named_files
from tests.integration.participant.calls import Inventory
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

AMENDS = Path(sys.executable).parent / "amends"
PROTO = named_files(README)["tickets.proto"]


def misspell_field(proto: str) -> str:
    """An annotation's field that doesn't exist."""
    return proto.replace("compensation:", "compensate:")


def misspell_import(proto: str) -> str:
    """Our annotations under another name."""
    return proto.replace("amends/v1/annotations", "amends/annotations")


def forget_import(proto: str) -> str:
    """The option used, and not imported."""
    return proto.replace('import "amends/v1/annotations.proto";', "")


@pytest.mark.parametrize(
    ("mistake", "advice"),
    [
        (misspell_field, "has no field 'compensate'; it has: compensation, lookup, timeout, guarantee,"),
        (misspell_import, 'amends\' own options are imported as "amends/v1/annotations.proto"'),
        (forget_import, 'needs this line above: import "amends/v1/annotations.proto";'),
    ],
)
def test_mistakes_in_the_proto(mistake: Callable[[str], str], advice: str, tmp_path: Path) -> None:
    """`amends generate` names the line and what would be right."""
    (tmp_path / "tickets.proto").write_text(mistake(PROTO))
    said = generate("tickets.proto", tmp_path)
    assert advice in said
    assert "tickets.proto:" in said


def test_a_proto_that_is_not_there(tmp_path: Path) -> None:
    """`amends generate` says where it looked."""
    assert generate("ticket.proto", tmp_path) == "no such file: ticket.proto\nLooked in the working directory.\n"


async def test_a_participant_that_takes_another_participant_for_the_coordinator(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It says what to correct, also to somebody who has set up no logging."""
    async with participant("127.0.0.1:1") as other, participant(other.address):
        with caplog.at_level(logging.WARNING, "amends.participant"):
            await eventually(
                lambda: "is no amends coordinator: correct coordinator=" in caplog.text, what="a line that says so"
            )


def generate(proto: str, folder: Path) -> str:
    """What a refused `amends generate` says."""
    done = subprocess.run(
        [AMENDS, "generate", proto, "--out", "."], cwd=folder, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode != 0
    return done.stderr


def participant(coordinator: str) -> ParticipantServer:
    """A participant that announces itself there."""
    server = ParticipantServer("inventory", coordinator=coordinator)
    server.add(Inventory())
    return server
