"""The command `saga watch`, and `saga get --follow`: one saga until it ends, or a list while somebody looks."""

import asyncio
import signal
import threading
from collections.abc import Coroutine
from contextlib import aclosing
from typing import Annotated, NoReturn

import typer
from google.protobuf.descriptor_pool import DescriptorPool

from amends.cli.connection import DEFAULT_COORDINATOR, Coordinator, sagas_at
from amends.cli.errors import CommandError
from amends.cli.filters import filtered, is_empty
from amends.cli.following import changes_of, lists_of
from amends.cli.listing import DEFAULT_LIMIT
from amends.cli.payload_types import types_at_hand
from amends.cli.payloads import saga_json
from amends.cli.show import console
from amends.cli.views import LINES_AROUND, Lines, ListLines, ListScreen, NewsLines, SagaScreen
from amends.v1.saga_pb2 import Saga
from amends.v1.saga_service_pb2 import ListSagasRequest

INTERRUPTED = 130
"""The exit code of a command that Ctrl-C ended before it had its answer, as shells know it."""


@filtered
def watch(
    request: ListSagasRequest,
    saga_id: Annotated[str, typer.Argument(metavar="ID", help="One saga.", show_default=False)] = "",
    limit: Annotated[
        int,
        typer.Option(
            min=0, show_default=False, help=f"List at most so many.  [default: what fits; {DEFAULT_LIMIT} in a pipe]"
        ),
    ] = 0,
    coordinator: Coordinator = DEFAULT_COORDINATOR,
) -> None:
    """Watch one saga until it ends (exit code 0 only if it committed), or the list that options choose until Ctrl-C.

    A terminal is drawn anew with each change; a pipe gets a line for each. It goes on over restarts of the coordinator.
    """
    if saga_id and not is_empty(request):
        raise CommandError("One saga is watched by its id, a list by options: give one or the other.")
    if saga_id:
        follow(coordinator, saga_id, as_json=False)
    raise typer.Exit(_until_interrupted(_watch_list(coordinator, request, limit), code=0))


def follow(address: str, saga_id: str, *, as_json: bool) -> NoReturn:
    """Show how a saga goes on until it ends or Ctrl-C; the command ends with it."""
    following = _print_each(address, saga_id) if as_json else _watch_one(address, saga_id)
    raise typer.Exit(_until_interrupted(following, code=INTERRUPTED))


def _until_interrupted(watching: Coroutine[object, object, int], *, code: int) -> int:
    """The exit code; `code` if Ctrl-C ended it."""
    try:
        return asyncio.run(_heard_by_the_loop(watching))
    except (KeyboardInterrupt, asyncio.CancelledError):
        return code


async def _heard_by_the_loop(watching: Coroutine[object, object, int]) -> int:
    """The same, cancelled by Ctrl-C at once. What `asyncio.run` does about that is done when the loop next wakes, which
    a signal to another thread doesn't make it do, nor one that comes the moment before it waits.
    """
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert task is not None  # this is a coroutine
    if threading.current_thread() is not threading.main_thread():
        return await watching  # a test's: signals are for the main thread
    loop.add_signal_handler(signal.SIGINT, task.cancel)
    try:
        return await watching
    finally:
        loop.remove_signal_handler(signal.SIGINT)


async def _watch_one(address: str, saga_id: str) -> int:
    output = console()
    last = Saga()
    view: SagaScreen | NewsLines = SagaScreen(output) if output.is_terminal else NewsLines(output)
    async with sagas_at(address) as sagas, aclosing(changes_of(sagas, saga_id, view.lost)) as changes:
        with view:
            async for last in changes:
                view.show(last)
    return int(last.state != Saga.STATE_COMMITTED)


async def _print_each(address: str, saga_id: str) -> int:
    last, types, view = Saga(), None, Lines(console())
    async with sagas_at(address) as sagas, aclosing(changes_of(sagas, saga_id, view.lost)) as changes:
        async for last in changes:
            view.is_lost = False
            types = types or await types_at_hand(sagas, last)
            typer.echo(saga_json(last, types or DescriptorPool(), indent=None))
    return int(last.state != Saga.STATE_COMMITTED)


async def _watch_list(address: str, wanted: ListSagasRequest, limit: int) -> int:
    output = console()
    view: ListScreen | ListLines = (
        ListScreen(output, shows_progress_time=wanted.HasField("stalled_for"))
        if output.is_terminal
        else ListLines(output)
    )

    def room() -> int:
        fitting = max(1, output.height - LINES_AROUND) if output.is_terminal else DEFAULT_LIMIT
        return limit or fitting

    async with sagas_at(address) as sagas, aclosing(lists_of(sagas, wanted, room, view.lost)) as lists:
        with view:
            async for found in lists:
                view.show(found)
    return 0
