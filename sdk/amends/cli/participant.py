"""The commands about participants: `participant add`, `participant list`, `participant remove`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer
from google.protobuf.json_format import MessageToJson
from rich.text import Text

from amends.cli.connection import CALL_TIMEOUT_S, DEFAULT_COORDINATOR, Coordinator, participants_at
from amends.cli.definition_files import Includes, described_types
from amends.cli.errors import USAGE, CommandError
from amends.cli.formats import LONGEST_NAME, cut, instant
from amends.cli.show import BAD, QUIET, columns, console
from amends.v1.registry_service_pb2 import (
    DeregisterParticipantRequest,
    ListParticipantsRequest,
    ListParticipantsResponse,
    Participant,
    RegisterParticipantRequest,
    StaticConnection,
    TlsOptions,
)
from amends.v1.registry_service_pb2_grpc import RegistryServiceStub

PAGE_SIZE = 1_000

# The target itself may be asked what it serves, and be slow.
ADDING_TIMEOUT_S = 30.0

Name = Annotated[str, typer.Argument(metavar="NAME", help="The participant's name.", show_default=False)]

participant_commands = typer.Typer(
    help="Look at participants, and make known those that don't announce themselves.",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
)


@participant_commands.command(short_help="Make one known that knows nothing of sagas, or change it.")
def add(  # noqa: PLR0913, PLR0917 - a command has an argument for each option
    name: Name,
    target: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where it is; dns:///HOST:PORT is looked up anew.")],
    tls: Annotated[bool, typer.Option("--tls", help="Speak TLS with it; the options below imply it.")] = False,
    ca_file: Annotated[
        str, typer.Option(metavar="NAME", help="Authorities to trust.  [default: those that gRPC trusts]")
    ] = "",
    client_certificate_file: Annotated[
        str, typer.Option(metavar="NAME", help="Certificate chain to show it, for mutual TLS.")
    ] = "",
    client_key_file: Annotated[str, typer.Option(metavar="NAME", help="Key of that certificate.")] = "",
    server_name: Annotated[str, typer.Option(metavar="HOST", help="Whom its certificate has to be for.")] = "",
    header: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="Sent with every call, no secret; may be repeated.")
    ] = None,
    token_file: Annotated[
        str, typer.Option(metavar="NAME", help="Token to send as authorization: Bearer with every call; needs TLS.")
    ] = "",
    capacity: Annotated[int, typer.Option(min=0, help="How many calls it takes at once; 0: as many as come.")] = 0,
    service: Annotated[
        list[str] | None,
        typer.Option(metavar="FULL.NAME", help="A service that it serves; may be repeated.  [default: all described]"),
    ] = None,
    descriptors: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="What it serves: a descriptor set, made by protoc with --include_imports."
            "  [default: the coordinator asks its server reflection]",
        ),
    ] = None,
    proto: Annotated[
        list[Path] | None, typer.Option("--proto", metavar="FILE", help="What it serves: a proto, instead of that.")
    ] = None,
    include: Includes = None,
    coordinator: Coordinator = DEFAULT_COORDINATOR,
) -> None:
    """Make a participant known that knows nothing of sagas, or change one; safe to repeat.

    Certificates, keys and tokens are named by their files in the coordinator's directory of secrets
    (AMENDS_SECRETS_DIR).
    """
    options = TlsOptions(
        ca_file=ca_file,
        client_certificate_file=client_certificate_file,
        client_key_file=client_key_file,
        server_name=server_name,
    )
    connection = StaticConnection(
        target=target,
        tls=options if tls or options != TlsOptions() else None,
        headers=_read_headers(header or []),
        token_file=token_file,
        capacity=capacity,
    )
    request = RegisterParticipantRequest(
        name=name,
        services=service,
        connection=connection,
        descriptors=described_types(descriptors, proto, include) if descriptors or proto else None,
    )

    async def send() -> Participant:
        async with participants_at(coordinator) as registry:
            return (await registry.RegisterParticipant(request, timeout=ADDING_TIMEOUT_S)).participant

    known = asyncio.run(send())
    typer.echo(f"participant {cut(known.name, LONGEST_NAME)} at {cut(known.connection.target)} serves:")
    for each in known.services:
        typer.echo(f"  {cut(each)}")


@participant_commands.command("list", short_help="List participants by name, a line for each process.")
def list_participants(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    coordinator: Coordinator = DEFAULT_COORDINATOR,
) -> None:
    """List participants by name, a line for each process or static participant."""

    async def fetch() -> list[Participant]:
        async with participants_at(coordinator) as registry:
            return await _all(registry)

    found = asyncio.run(fetch())
    if as_json:
        shown = ListParticipantsResponse(participants=found)
        typer.echo(MessageToJson(shown, always_print_fields_with_no_presence=True))
        return
    if not found:
        typer.echo("no participants", err=True)
        return
    titles = ["PARTICIPANT", "WHERE", "TAKES", "UNTIL", "SERVICES"]
    for line in columns(titles, [cells for each in found for cells in _lines(each)]):
        console().print(line, soft_wrap=True)


@participant_commands.command(short_help="Take a static participant out; sagas that need it wait.")
def remove(name: Name, coordinator: Coordinator = DEFAULT_COORDINATOR) -> None:
    """Take a static participant out; sagas that need it wait, as if it were down."""

    async def send() -> bool:
        async with participants_at(coordinator) as registry:
            known = any(each.name == name for each in await _all(registry))
            await registry.DeregisterParticipant(DeregisterParticipantRequest(name=name), timeout=CALL_TIMEOUT_S)
            return known

    if asyncio.run(send()):
        typer.echo(f"participant {cut(name, LONGEST_NAME)} is taken out")
    else:
        typer.echo(f"there is no participant {cut(name, LONGEST_NAME)}; nothing was changed", err=True)


async def _all(registry: RegistryServiceStub) -> list[Participant]:
    found: list[Participant] = []
    token = ""
    while True:
        request = ListParticipantsRequest(page_size=PAGE_SIZE, page_token=token)
        page = await registry.ListParticipants(request, timeout=CALL_TIMEOUT_S)
        found += page.participants
        token = page.next_page_token
        if not token:
            return found


def _read_headers(given: Sequence[str]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for pair in given:
        key, equals, value = pair.partition("=")
        if not key or not equals:
            # What was given isn't repeated: it may be a secret in the wrong place.
            raise CommandError("--header: write KEY=VALUE, for example x-tenant=shop.", exit_code=USAGE)
        headers[key] = value
    return headers


def _lines(participant: Participant) -> Iterator[list[Text]]:
    """A line for each instance, or the one of a static participant, or one that says that there is none."""
    name = Text(cut(participant.name, LONGEST_NAME), "bold")
    services = Text(", ".join(cut(each) for each in participant.services))
    if participant.HasField("connection"):
        connection = participant.connection
        kind = "static, over TLS" if connection.HasField("tls") else "static"
        yield [name, Text(cut(connection.target)), _takes(connection.capacity), Text(kind), services]
        return
    for instance in participant.instances:
        until = Text(instant(instance.lease_end_time))
        yield [name.copy(), Text(cut(instance.address)), _takes(instance.capacity), until, services.copy()]
    if not participant.instances:
        yield [name, Text("-", QUIET), Text("-", QUIET), Text("no process announces it", BAD), services]


def _takes(capacity: int) -> Text:
    return Text(str(capacity)) if capacity else Text("-", QUIET)
