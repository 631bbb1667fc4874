"""Calls of static participants: what goes with them, and what becomes of a call whose secret isn't there."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from amends_coordinator.calls.secrets import Secrets
from amends_coordinator.calls.unary import UnaryParticipants
from amends_coordinator.core.ids import Instant
from amends_coordinator.core.states import Outcome
from amends_coordinator.ports.connections import StaticConnection, TlsOptions
from amends_coordinator.ports.ledger import InstanceRow
from amends_coordinator.system import SystemClock
from tests.unit.calls.servers import compensation, listening


@dataclass(slots=True)
class OneStatic:
    """A directory with one static participant, which may move."""

    connection: StaticConnection

    def serving(self, service: str) -> Sequence[str]:
        """See the port."""
        return ["bank"]

    def may_serve(self, participant: str, service: str) -> bool:
        """See the port."""
        return participant in self.serving(service)

    def instances(self, *, service: str, participant: str) -> Sequence[InstanceRow]:
        """See the port."""
        return [
            InstanceRow(
                participant="bank",
                instance_id="static",
                address=self.connection.target,
                capacity=0,
                lease_end_time=Instant(2**60),
                connection=self.connection,
            )
        ]


@asynccontextmanager
async def calling(directory: OneStatic, secrets: Path | None = None) -> AsyncGenerator[UnaryParticipants]:
    """What calls the participants of a directory."""
    participants = UnaryParticipants(
        directory=directory,
        clock=SystemClock(),
        ledger_name="test",
        payload_limit_bytes=1 << 20,
        connect_gate_s=1,
        secrets=Secrets(str(secrets or "")),
    )
    try:
        yield participants
    finally:
        await participants.close()


async def test_headers_go_with_every_call_beside_our_own() -> None:
    """A static participant hears the headers that it wants, and the key as everybody does (S2)."""
    heard: list[dict[str, str | bytes]] = []
    async with listening(heard) as address:
        directory = OneStatic(StaticConnection(target=address, headers=(("x-tenant", "shop"),)))
        async with calling(directory) as participants:
            answer = await participants.call(compensation())
    assert answer.outcome is Outcome.SUCCEEDED
    assert (heard[0]["x-tenant"], heard[0]["idempotency-key"]) == ("shop", "s/pay/compensation")


async def test_a_participant_that_repeats_what_it_was_sent() -> None:
    """What it says is stored, logged and shown, so what only it was to hear is taken out."""
    heard: list[dict[str, str | bytes]] = []
    async with listening(heard, repeats="x-api-key") as address:
        directory = OneStatic(StaticConnection(target=address, headers=(("x-api-key", "s3cret-value"),)))
        async with calling(directory) as participants:
            answer = await participants.call(compensation())
    assert (answer.status_code, answer.message) == ("PERMISSION_DENIED", "not for '…'")
    assert heard[0]["x-api-key"] == "s3cret-value"


async def test_a_static_participant_that_moved_is_found() -> None:
    """The next call goes to the new target, also a compensation of work done at the old one."""
    first: list[dict[str, str | bytes]] = []
    second: list[dict[str, str | bytes]] = []
    async with listening(first) as before, listening(second) as after:
        directory = OneStatic(StaticConnection(target=before))
        async with calling(directory) as participants:
            await participants.call(compensation())
            directory.connection = StaticConnection(target=after)
            await participants.call(compensation())
    assert (len(first), len(second)) == (1, 1)


async def test_without_its_secret_nothing_is_sent(tmp_path: Path) -> None:
    """A missing or useless file is a call that was not sent, with a sentence that names it; and never in plain text."""
    (tmp_path / "ca.pem").write_text("this is no certificate, but a s3cret")
    (tmp_path / "empty").write_text("\n")
    heard: list[dict[str, str | bytes]] = []
    async with listening(heard) as address:
        for tls, token_file, said in (
            (TlsOptions(ca_file="gone.pem"), "", "gone.pem in its directory of secrets (No such file"),
            (TlsOptions(ca_file="ca.pem"), "", "ca.pem in the directory of secrets holds no certificates"),
            (TlsOptions(ca_file="../ca.pem"), "", "without any folder"),
            (TlsOptions(), "empty", "empty in the directory of secrets holds no token"),
        ):
            directory = OneStatic(StaticConnection(target=address, tls=tls, token_file=token_file))
            async with calling(directory, tmp_path) as participants:
                answer = await participants.call(compensation())
            assert answer.outcome is Outcome.NOT_SENT
            assert answer.message.startswith("participant bank can't be reached: ")
            assert said in answer.message
            assert "s3cret" not in answer.message
    assert heard == []


async def test_without_a_directory_of_secrets() -> None:
    """The sentence names the setting."""
    directory = OneStatic(StaticConnection(target="127.0.0.1:1", tls=TlsOptions(), token_file="token"))
    async with calling(directory) as participants:
        answer = await participants.call(compensation())
    assert (answer.outcome, "AMENDS_SECRETS_DIR" in answer.message) == (Outcome.NOT_SENT, True)


def test_a_secret_is_read_anew_when_it_changes(tmp_path: Path) -> None:
    """At most one look a second; a rotated token is sent within one."""
    now_s = 100.0
    secrets = Secrets(str(tmp_path), monotonic_s=lambda: now_s)
    (tmp_path / "token").write_text("first\n")
    assert secrets.token("token") == "first"
    (tmp_path / "token").write_text("second token".replace(" ", "-"))
    assert secrets.token("token") == "first"
    now_s += 1
    assert secrets.token("token") == "second-token"
