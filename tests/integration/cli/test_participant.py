"""`amends participant add|list|remove` against a real coordinator and a service that knows nothing of us."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import grpc
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from typer.testing import CliRunner

from acme.v1 import charges_pb2
from amends.cli.app import app
from amends.v1 import registry_service_pb2 as pb
from tests.scenarios.inside import announcement
from tests.scenarios.processes import coordinator
from tests.scenarios.test_third_party import acme
from tests.unit.grpc_api.samples import files_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable
    from pathlib import Path

    from typer.testing import Result

    Run = Callable[..., Awaitable[Result]]


@pytest.fixture
async def address(tmp_path: Path) -> AsyncGenerator[str]:
    """Where a coordinator with an empty directory of secrets answers."""
    (tmp_path / "secrets").mkdir()
    process = coordinator(tmp_path, AMENDS_SECRETS_DIR=str(tmp_path / "secrets"))
    await process.start()
    yield process.address
    await process.stop()
    assert "Traceback" not in process.log_text(), process.log_text()


@pytest.fixture
def run(address: str) -> Run:
    """Runs a command at it."""

    async def command(*arguments: str) -> Result:
        at = ("--coordinator", address)
        return await asyncio.to_thread(lambda: CliRunner().invoke(app, ["participant", *arguments, *at]))

    return command


def announce_and_leave(address: str, *, leave: bool) -> None:
    """A participant that announces itself; with `leave` its only process goes. Without asyncio, because gRPC can't have
    two event loops in one process.
    """
    with grpc.insecure_channel(address) as channel:
        register = channel.unary_unary(
            "/amends.v1.RegistryService/RegisterParticipant",
            request_serializer=pb.RegisterParticipantRequest.SerializeToString,
            response_deserializer=pb.RegisterParticipantResponse.FromString,
        )
        deregister = channel.unary_unary(
            "/amends.v1.RegistryService/DeregisterParticipant",
            request_serializer=pb.DeregisterParticipantRequest.SerializeToString,
            response_deserializer=pb.DeregisterParticipantResponse.FromString,
        )
        register(announcement("steps", "127.0.0.1:9"))
        if leave:
            deregister(pb.DeregisterParticipantRequest(name="steps", instance_id="i-1"))


async def test_added_listed_and_removed(tmp_path: Path, address: str, run: Run) -> None:
    """Added by its reflection; listed beside one that announces itself; removed, and removing again is harmless."""
    async with acme(tmp_path) as company:
        where = company.process.address
        added = await run("add", "acme", "--target", where, "--header", "x-tenant=quiet", "--capacity", "4")
    assert (added.exit_code, added.stdout) == (0, f"participant acme at {where} serves:\n  acme.v1.ChargeService\n")
    announce_and_leave(address, leave=False)
    lines = [line.split() for line in (await run("list")).stdout.splitlines()]
    assert lines[0] == ["PARTICIPANT", "WHERE", "TAKES", "UNTIL", "SERVICES"]
    assert lines[1] == ["acme", where, "4", "static", "acme.v1.ChargeService"]
    assert [*lines[2][:3], lines[2][-1]] == ["steps", "127.0.0.1:9", "-", "scenario.v1.StepService"]
    first, second = json.loads((await run("list", "--json")).stdout)["participants"]
    assert (first["connection"]["target"], first["connection"]["headers"]) == (where, {"x-tenant": ""})
    assert second["instances"][0]["address"] == "127.0.0.1:9"
    assert (await run("remove", "acme")).stdout == "participant acme is taken out\n"
    again = await run("remove", "acme")
    assert (again.exit_code, again.stderr) == (0, "there is no participant acme; nothing was changed\n")
    own = await run("remove", "steps")
    assert (own.exit_code, "announces itself" in own.stderr) == (1, True)
    announce_and_leave(address, leave=True)
    assert "no process announces it" in (await run("list")).stdout


async def test_refused_and_added_by_a_descriptor_file(tmp_path: Path, run: Run) -> None:
    """A fault is a sentence, no traceback, no secret, and adds nobody. What protoc made describes a participant; nobody
    is asked, so it may be down.
    """
    (tmp_path / "empty").write_bytes(FileDescriptorSet().SerializeToString())
    proto, junk = tmp_path / "plain.proto", tmp_path / "junk"
    proto.write_text(
        'syntax = "proto3";\npackage plain;\nservice Tills { rpc Pay(Paid) returns (Paid); }\nmessage Paid {}\n'
    )
    junk.write_text("no descriptors\n")
    for arguments, said in (
        (("--target", "127.0.0.1:1"), "127.0.0.1:1 did not tell what it serves (UNAVAILABLE"),
        (("--target", "there"), "connection.target: 'there' is not HOST:PORT"),
        (("--target", "a:1", "--header", "s3cret"), "--header: write KEY=VALUE"),
        (("--target", "a:1", "--token-file", "t"), "connection.token_file: needs TLS"),
        (("--target", "a:1", "--ca-file", "ca.pem"), "can't read ca.pem in its directory of secrets"),
        (("--target", "a:1", "--descriptors", "gone"), "can't read gone"),
        (("--target", "a:1", "--descriptors", str(tmp_path / "empty")), "descriptors: describe no service"),
        (("--target", "a:1", "--descriptors", str(proto)), "is a proto, no descriptor set.\nGive it with --proto.\n"),
        (
            ("--target", "a:1", "--descriptors", str(junk)),
            "Make one with protoc --include_imports --descriptor_set_out=F",
        ),
    ):
        done = await run("add", "acme", *arguments)
        assert done.exit_code != 0
        assert said in done.stderr
        assert "s3cret" not in done.output
    listed = await run("list")
    assert (listed.exit_code, listed.stderr) == (0, "no participants\n")
    file = tmp_path / "acme.binpb"
    file.write_bytes(files_of(charges_pb2.DESCRIPTOR).SerializeToString())
    added = await run("add", "acme", "--target", "dns:///nowhere.invalid:443", "--tls", "--descriptors", str(file))
    assert (added.exit_code, added.stdout.splitlines()[1:]) == (0, ["  acme.v1.ChargeService"])
    assert "static, over TLS" in (await run("list")).stdout
    by_proto = await run("add", "tills", "--target", "a:1", "--proto", str(proto), "-I", str(tmp_path))
    assert (by_proto.exit_code, by_proto.stdout) == (0, "participant tills at a:1 serves:\n  plain.Tills\n")
