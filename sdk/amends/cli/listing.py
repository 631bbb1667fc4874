"""The command `saga list`: the sagas that its options choose, newest first."""

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated

import typer
from google.protobuf.descriptor_pool import DescriptorPool

from amends.cli.connection import CALL_TIMEOUT_S, DEFAULT_COORDINATOR, Coordinator, sagas_at
from amends.cli.filters import filtered, is_empty
from amends.cli.payload_types import types_of
from amends.cli.payloads import saga_json
from amends.cli.rows import saga_rows
from amends.cli.show import console
from amends.v1.saga_pb2 import Saga
from amends.v1.saga_service_pb2 import ListSagasRequest
from amends.v1.saga_service_pb2_grpc import SagaServiceStub

PAGE_SIZE = 1_000
DEFAULT_LIMIT = 50


@filtered
def list_sagas(
    request: ListSagasRequest,
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = DEFAULT_LIMIT,
    as_json: Annotated[bool, typer.Option("--json", help="Print a line of JSON for each, payloads included.")] = False,
    coordinator: Coordinator = DEFAULT_COORDINATOR,
) -> None:
    """List sagas, newest first, one per line; options choose which, and each leaves out what it doesn't name."""
    found = asyncio.run(_print_json(coordinator, request, limit) if as_json else _print(coordinator, request, limit))
    if not found:
        typer.echo("no sagas" if is_empty(request) else "no sagas that all options let through", err=True)
    elif found > limit:
        typer.echo(f"these are the newest {limit}; --limit shows more", err=True)


async def newest(sagas: SagaServiceStub, wanted: ListSagasRequest, limit: int) -> AsyncIterator[Saga]:
    """The newest sagas of those that are wanted, page by page."""
    request = ListSagasRequest()
    request.CopyFrom(wanted)
    while limit > 0:
        request.page_size = min(limit, PAGE_SIZE)
        page = await sagas.ListSagas(request, timeout=CALL_TIMEOUT_S)
        for saga in page.sagas[:limit]:
            yield saga
        limit -= len(page.sagas)
        request.page_token = page.next_page_token
        if not page.next_page_token:
            return


async def _print(address: str, wanted: ListSagasRequest, limit: int) -> int:
    """Print the list; how many were found, one more than the limit where there are more."""
    async with sagas_at(address) as sagas:
        found = [saga async for saga in newest(sagas, wanted, limit + 1)]
    output = console()
    if found:
        stalled = wanted.HasField("stalled_for")
        for line in saga_rows(found[:limit], output, shows_progress_time=stalled):
            output.print(line, soft_wrap=True)
    return len(found)


async def _print_json(address: str, wanted: ListSagasRequest, limit: int) -> int:
    """The same as JSON; each definition's types are asked for once."""
    types: dict[tuple[str, str], DescriptorPool] = {}
    found = 0
    async with sagas_at(address) as sagas:
        async for saga in newest(sagas, wanted, limit + 1):
            found += 1
            key = (saga.definition_name, saga.definition_version)
            if found <= limit:
                types[key] = types.get(key) or await types_of(sagas, saga)
                typer.echo(saga_json(saga, types[key], indent=None))
    return found
