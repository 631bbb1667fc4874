"""The options that choose sagas: the same for `saga list` and `saga watch`."""

import functools
import inspect
from collections.abc import Callable
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any

import typer

from amends.cli.errors import CommandError
from amends.cli.formats import cut
from amends.cli.spans import read_duration, read_instant
from amends.v1.saga_pb2 import Saga
from amends.v1.saga_service_pb2 import ListSagasRequest


class StateName(StrEnum):
    """The states of a saga, as they are written on the command line."""

    RUNNING = "running"
    COMMITTED = "committed"
    COMPENSATING = "compensating"
    COMPENSATED = "compensated"
    COMPENSATION_FAILED = "compensation_failed"


def chosen(  # noqa: PLR0913, PLR0917 - a command has an argument for each option
    state: Annotated[list[StateName] | None, typer.Option(help="In this state; may be repeated.")] = None,
    definition: Annotated[str, typer.Option(metavar="NAME", help="Of the definition of this name.")] = "",
    definition_version: Annotated[
        str, typer.Option(metavar="VERSION", help="Of this version of it.", show_default=False)
    ] = "",
    label: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="With this label; may be repeated.")
    ] = None,
    attention: Annotated[bool, typer.Option("--attention", help="With an open dead letter.")] = False,
    unproven: Annotated[bool, typer.Option("--unproven", help="Whose end no participant has proven.")] = False,
    owed: Annotated[bool, typer.Option("--owed", help="That still owe compensations.")] = False,
    participant: Annotated[str, typer.Option(metavar="NAME", help="With a step that this participant serves.")] = "",
    since: Annotated[str, typer.Option(metavar="TIME", help="Started then or later: 2h (ago), 2026-11-30.")] = "",
    until: Annotated[str, typer.Option(metavar="TIME", help="Started then or earlier.")] = "",
    updated_since: Annotated[str, typer.Option(metavar="TIME", help="Written last then or later.")] = "",
    updated_until: Annotated[str, typer.Option(metavar="TIME", help="Written last then or earlier.")] = "",
    stalled_for: Annotated[
        str, typer.Option(metavar="DURATION", help="That haven't got on for so long: 5m, 1h30m.")
    ] = "",
) -> ListSagasRequest:
    """What to ask for; each option leaves out what it doesn't name.

    Raises:
        CommandError: an option can't be read.
    """
    request = ListSagasRequest(
        states=[Saga.State.Value(f"STATE_{name.upper()}") for name in state or []],
        definition_name=definition,
        definition_version=definition_version,
        labels=read_labels(label or []),
        attention_required=attention,
        unproven=unproven,
        compensations_owed=owed,
        participant=participant,
    )
    now = datetime.now(UTC)
    times = (
        (request.earliest_create_time, "--since", since),
        (request.latest_create_time, "--until", until),
        (request.earliest_update_time, "--updated-since", updated_since),
        (request.latest_update_time, "--updated-until", updated_until),
    )
    for field, option, text in times:
        if text:
            field.FromDatetime(read_instant(option, text, now))
    if stalled_for:
        request.stalled_for.FromTimedelta(read_duration("--stalled-for", stalled_for))
    return request


# `...`: typer gives a command what its options say by their names, and no checker knows them.
def filtered(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command the options of `chosen`; what they choose becomes its first argument."""
    options = inspect.signature(chosen).parameters
    own = list(inspect.signature(command).parameters.values())[1:]

    # Any: the values of the options, which typer has checked.
    @functools.wraps(command)
    def run(**given: Any) -> None:
        request = chosen(**{name: given.pop(name) for name in options})
        command(request, **given)

    # What typer reads the command's options from.
    parameters = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in (*options.values(), *own)]
    vars(run)["__signature__"] = inspect.Signature(parameters)
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


def is_empty(request: ListSagasRequest) -> bool:
    """Whether no option was given: every saga is asked for."""
    return not request.ByteSize()


def read_labels(pairs: list[str]) -> dict[str, str]:
    """Labels from KEY=VALUE.

    Raises:
        CommandError: one is none, or is given twice.
    """
    labels: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not key or not equals:
            raise CommandError(f"--label {cut(pair)!r} is no label: write KEY=VALUE.")
        if key in labels:
            raise CommandError(f"--label {cut(key)} is given twice; a saga has one value for each.")
        labels[key] = value
    return labels
