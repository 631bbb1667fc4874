"""The commands about definitions at a coordinator: `definition apply`, `definition list`, `definition get`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from typing import Annotated

import grpc
import typer
from google.protobuf.json_format import MessageToDict, MessageToJson
from rich.text import Text

from amends.cli.check import Targets, checked, checked_definition
from amends.cli.check_report import Checked, print_report
from amends.cli.connection import CALL_TIMEOUT_S, DEFAULT_COORDINATOR, Coordinator, reason_of, sagas_at
from amends.cli.definition_files import Descriptors, Includes, Protos, described_types
from amends.cli.errors import USAGE, CommandError
from amends.cli.formats import LONGEST_NAME, cut, instant, micros
from amends.cli.payloads import pool_of
from amends.cli.show import columns, console
from amends.cli.targets import candidates
from amends.v1.saga_definition_pb2 import SagaDefinition
from amends.v1.saga_service_pb2 import (
    GetSagaDefinitionRequest,
    ListSagaDefinitionsRequest,
    RegisterSagaDefinitionRequest,
)
from amends.v1.saga_service_pb2_grpc import SagaServiceStub

PAGE_SIZE = 100

definition_commands = typer.Typer(
    help="Register saga definitions and look at them.",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
)


@definition_commands.command()
def apply(
    targets: Targets,
    descriptors: Descriptors = None,
    proto: Protos = None,
    include: Includes = None,
    coordinator: Coordinator = DEFAULT_COORDINATOR,
) -> None:
    """Register definitions; safe to repeat. All are checked first, and with a fault in one none is registered."""
    found = [checked(each) for each in candidates(targets, described_types(descriptors, proto, include))]
    faulty = [each for each in found if each.faults]
    for each in faulty:
        print_report(each, console())
    if faulty:
        typer.echo("nothing was registered", err=True)
        raise typer.Exit(1)
    _refuse_namesakes(found)
    asyncio.run(_register(found, coordinator))


def _refuse_namesakes(found: Sequence[Checked]) -> None:
    """Of two definitions of one name the last one would win, today; and whichever is changed first, another day."""
    first: dict[str, Checked] = {}
    for each in found:
        other = first.setdefault(each.name, each)
        if other.version != each.version:
            raise CommandError(
                f"{cut(other.source)} and {cut(each.source)} are both called {cut(each.name)!r} and differ: sagas begin"
                " with the one that is registered last.",
                "Name the one that is meant (module:saga), or rename the other; nothing was registered.",
                exit_code=USAGE,
            )


async def _register(found: Sequence[Checked], coordinator: str) -> None:
    async with sagas_at(coordinator) as sagas:
        for each in found:
            assert each.definition is not None  # else it would be faulty
            before = await _default_version(sagas, each.definition.name)
            request = RegisterSagaDefinitionRequest(definition=each.definition)
            stored = (await sagas.RegisterSagaDefinition(request, timeout=CALL_TIMEOUT_S)).definition
            typer.echo(f"{cut(stored.name)} {stored.version}: {_change(before, stored)}")


async def _default_version(sagas: SagaServiceStub, name: str) -> SagaDefinition | None:
    """The definition that sagas of this name begin with; None if there is none."""
    try:
        return (await sagas.GetSagaDefinition(GetSagaDefinitionRequest(name=name), timeout=CALL_TIMEOUT_S)).definition
    except grpc.aio.AioRpcError as error:
        if reason_of(error) != "DEFINITION_NOT_FOUND":
            raise
        return None


def _change(before: SagaDefinition | None, stored: SagaDefinition) -> str:
    """What registering a definition has changed."""
    if before is None:
        return "new"
    if before.version == stored.version:
        return "unchanged"
    if micros(stored.create_time) < micros(before.create_time):
        return f"known already; new sagas still begin with the newer {before.version}"
    return f"changed, new sagas begin with it (before: {before.version})"


@definition_commands.command("list", short_help="List definitions, newest first, one line per version.")
def list_definitions(
    name: Annotated[str, typer.Option(help="Only versions of the definition of this name.")] = "",
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = 50,
    as_data: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    coordinator: Coordinator = DEFAULT_COORDINATOR,
) -> None:
    """List definitions, newest first, one line per version; new sagas begin with the newest of its name."""

    async def fetch() -> list[tuple[SagaDefinition, bool]]:
        async with sagas_at(coordinator) as sagas:
            known: set[str] = set()
            found: list[tuple[SagaDefinition, bool]] = []
            async for each in _listed(sagas):
                if name in ("", each.name):
                    found.append((each, each.name not in known))
                    known.add(each.name)
                if len(found) > limit:
                    break
            return found

    found = asyncio.run(fetch())
    if as_data:
        shown = [MessageToDict(each) | {"default": is_default} for each, is_default in found[:limit]]
        typer.echo(json.dumps({"definitions": shown}, indent=2, ensure_ascii=False))
        return
    if not found:
        typer.echo("no definitions" if not name else f"no definition is called {cut(name, LONGEST_NAME)}", err=True)
        return
    titles = ["DEFINITION", "VERSION", "STEPS", "REGISTERED", ""]
    for line in columns(titles, [_cells(each, is_default) for each, is_default in found[:limit]]):
        console().print(line, soft_wrap=True)
    if len(found) > limit:
        typer.echo("there are more: --limit shows them", err=True)


async def _listed(sagas: SagaServiceStub) -> AsyncIterator[SagaDefinition]:
    token = ""
    while True:
        request = ListSagaDefinitionsRequest(page_size=PAGE_SIZE, page_token=token)
        page = await sagas.ListSagaDefinitions(request, timeout=CALL_TIMEOUT_S)
        for each in page.definitions:
            yield each
        token = page.next_page_token
        if not token:
            return


def _cells(definition: SagaDefinition, is_default: bool) -> list[Text]:
    steps = len(definition.steps) + len(definition.on_compensated)
    return [
        Text(cut(definition.name, LONGEST_NAME), "bold"),
        Text(cut(definition.version, LONGEST_NAME)),
        Text(str(steps)),
        Text(instant(definition.create_time)),
        Text("default" if is_default else ""),
    ]


@definition_commands.command()
def get(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the definition.", show_default=False)],
    version: Annotated[str, typer.Option(help="Its version.  [default: the newest]")] = "",
    as_data: Annotated[
        bool, typer.Option("--json", help="Print the definition as JSON, as `check` and `definition apply` take it.")
    ] = False,
    coordinator: Coordinator = DEFAULT_COORDINATOR,
) -> None:
    """Show what a registered definition does, as `amends check` shows it."""

    async def fetch() -> SagaDefinition:
        async with sagas_at(coordinator) as sagas:
            request = GetSagaDefinitionRequest(name=name, version=version)
            return (await sagas.GetSagaDefinition(request, timeout=CALL_TIMEOUT_S)).definition

    found = asyncio.run(fetch())
    if as_data:
        typer.echo(MessageToJson(found, preserving_proto_field_name=True, descriptor_pool=pool_of(found)))
    else:
        print_report(checked_definition(found, coordinator), console())
