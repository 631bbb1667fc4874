"""The commands that start a saga and look at one: `saga start`, `saga get`."""

from __future__ import annotations

import asyncio
from typing import Annotated

import grpc
import typer
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.duration_pb2 import Duration

from amends.cli import watching
from amends.cli.connection import (
    BROKEN_OFF,
    CALL_TIMEOUT_S,
    DEFAULT_COORDINATOR,
    Coordinator,
    explain,
    reason_of,
    sagas_at,
)
from amends.cli.errors import CommandError
from amends.cli.filters import read_labels
from amends.cli.formats import cut
from amends.cli.payload_types import types_of
from amends.cli.payloads import input_from_json, read_text, saga_json
from amends.cli.picture import SagaPicture
from amends.cli.show import console, saga_state
from amends.notices import trouble
from amends.v1.saga_pb2 import Saga
from amends.v1.saga_service_pb2 import (
    GetSagaDefinitionRequest,
    GetSagaRequest,
    StartSagaRequest,
    StartSagaResponse,
    WaitSagaRequest,
)
from amends.v1.saga_service_pb2_grpc import SagaServiceStub

FIRST_WAIT_S, WAIT_S = 3, 30
LONGEST_WHY = 1_000
NOT_OVER = (Saga.STATE_RUNNING, Saga.STATE_COMPENSATING)

saga_commands = typer.Typer(
    help="Start sagas and look at them.", no_args_is_help=True, rich_markup_mode=None, add_completion=False
)


@saga_commands.command()
def start(
    definition: Annotated[str, typer.Argument(metavar="DEFINITION", help="Name of a registered definition.")],
    payload: Annotated[
        str, typer.Option("--input", metavar="JSON|@FILE", help="The input as JSON; @FILE reads it, @- from a pipe.")
    ],
    saga_id: Annotated[
        str | None, typer.Option("--id", help="The saga's id; makes repeating safe.  [default: new]")
    ] = None,
    label: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="A label; may be repeated.")] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait for its end, show it, and exit with 0 only if it committed.")
    ] = False,
    coordinator: Coordinator = DEFAULT_COORDINATOR,
) -> None:
    """Start a saga of a registered definition. With the id of a saga that exists it shows that one."""
    if saga_id == "":
        raise CommandError("--id is empty.", "Give an id, or leave --id out for a new one.")
    text, labels = read_text(payload, "the input"), read_labels(label or [])

    async def begin() -> Saga:
        async with sagas_at(coordinator) as sagas:
            found = await sagas.GetSagaDefinition(GetSagaDefinitionRequest(name=definition), timeout=CALL_TIMEOUT_S)
            request = StartSagaRequest(
                saga_id=saga_id or "",
                definition_name=definition,
                definition_version=found.definition.version,
                input=input_from_json(found.definition, text),
                labels=labels,
            )
            answer = await _start(sagas, request, coordinator)
            verb = "started" if answer.started else "exists already"
            typer.echo(f"saga {cut(answer.saga.saga_id)} {verb}: {saga_state(answer.saga)}")
            return await _ended(sagas, answer.saga.saga_id, coordinator) if wait else answer.saga

    saga = asyncio.run(begin())
    if wait:
        console().print(SagaPicture(saga))
        raise typer.Exit(int(saga.state != Saga.STATE_COMMITTED))


@saga_commands.command(short_help="Show a saga: each ledger row and attempt, and their times.")
def get(
    saga_id: Annotated[str, typer.Argument(metavar="ID", help="The saga's id.", show_default=False)],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, payloads included.")] = False,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow", help="Go on until it ends, and exit with 0 only if it committed; with --json a line each."
        ),
    ] = False,
    coordinator: Coordinator = DEFAULT_COORDINATOR,
) -> None:
    """Show a saga: a tree with a branch per ledger row and a line per attempt, and their times as bars."""
    if follow:
        watching.follow(coordinator, saga_id, as_json=as_json)

    async def fetch() -> tuple[Saga, DescriptorPool]:
        async with sagas_at(coordinator) as sagas:
            saga = (await sagas.GetSaga(GetSagaRequest(saga_id=saga_id), timeout=CALL_TIMEOUT_S)).saga
            return saga, await types_of(sagas, saga) if as_json else DescriptorPool()

    saga, types = asyncio.run(fetch())
    if as_json:
        typer.echo(saga_json(saga, types))
    else:
        console().print(SagaPicture(saga))


async def _start(sagas: SagaServiceStub, request: StartSagaRequest, address: str) -> StartSagaResponse:
    """Start it; a call that breaks off leaves open whether the saga began, and the error says so."""
    try:
        return await sagas.StartSaga(request, timeout=CALL_TIMEOUT_S)
    except grpc.aio.AioRpcError as error:
        if reason_of(error) or error.code() not in BROKEN_OFF:
            raise
        again = (
            f"repeat the command, with --id {request.saga_id} that is safe."
            if request.saga_id
            else "look with `amends saga list` before you repeat it. With --id repeating is safe."
        )
        raise CommandError(next(explain(error, address)), f"Whether the saga began is not known: {again}") from error


async def _ended(sagas: SagaServiceStub, saga_id: str, address: str) -> Saga:
    """The saga with its rows, once it has ended or can't go on without a person. What holds it up is told meanwhile."""
    wait_s, told = FIRST_WAIT_S, ""
    try:
        while True:
            request = WaitSagaRequest(saga_id=saga_id, wait_timeout=Duration(seconds=wait_s))
            waited = (await sagas.WaitSaga(request, timeout=wait_s + CALL_TIMEOUT_S)).saga
            saga = (await sagas.GetSaga(GetSagaRequest(saga_id=saga_id), timeout=CALL_TIMEOUT_S)).saga
            if waited.state not in NOT_OVER:
                return saga
            why = trouble(saga)
            if why and why != told:
                typer.echo(cut(why, LONGEST_WHY), err=True)
                told = why
            wait_s = WAIT_S if why else min(2 * wait_s, WAIT_S)
    except grpc.aio.AioRpcError as error:
        raise CommandError(
            next(explain(error, address)),
            f"The saga is durable and goes on by itself: ask again with `amends saga get {saga_id}`.",
        ) from error
