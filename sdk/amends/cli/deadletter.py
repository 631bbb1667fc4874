"""The commands for what only a person can decide: `deadletter list`, `deadletter retry`, `deadletter resolve`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated

import typer
from google.protobuf.any_pb2 import Any
from rich.text import Text

from amends.cli.connection import CALL_TIMEOUT_S, DEFAULT_COORDINATOR, Coordinator, operator_at, sagas_at
from amends.cli.errors import CommandError
from amends.cli.formats import LONGEST_NAME, cut, enum_word, instant
from amends.cli.payloads import read_text, response_from_json
from amends.cli.people import Reason, login_name
from amends.cli.show import BAD, QUIET, columns, console, saga_state
from amends.v1.operator_service_pb2 import (
    DeadLetterGroup,
    ListDeadLettersRequest,
    ListDeadLettersResponse,
    ResolveDeadLetterRequest,
    RetryDeadLetterRequest,
)
from amends.v1.saga_pb2 import DIRECTION_ACTION, DeadLetter, Direction, Resolution, Saga
from amends.v1.saga_service_pb2 import GetSagaDefinitionRequest, GetSagaRequest

# The participant may be asked before a person's word is taken.
ASKING_TIMEOUT_S = 120.0

Letter = Annotated[str, typer.Argument(metavar="ID", help="The dead letter's id.", show_default=False)]

deadletter_commands = typer.Typer(
    help="Look at what only a person can decide, and settle it.",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
)


class Found(StrEnum):
    """What a person found, as it is written on the command line."""

    HAPPENED = "happened"
    DID_NOT_HAPPEN = "did-not-happen"
    UNDONE_BY_HAND = "undone-by-hand"


WHAT_TO_DO = (
    "when you know what happened: `amends deadletter retry ID` or `amends deadletter resolve ID FOUND` (--help)"
)


@deadletter_commands.command("list", short_help="List open dead letters, oldest first.")
def list_dead_letters(
    saga: Annotated[str, typer.Option("--saga", metavar="ID", help="Only those of this saga.")] = "",
    closed: Annotated[bool, typer.Option("--closed", help="Also those that are settled.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=1_000, help="At most so many one by one.")] = 50,
    coordinator: Coordinator = DEFAULT_COORDINATOR,
) -> None:
    """List open dead letters: how many of each kind, then one by one, oldest first."""

    async def fetch() -> ListDeadLettersResponse:
        async with operator_at(coordinator) as operator:
            request = ListDeadLettersRequest(saga_id=saga, closed_too=closed, page_size=limit)
            return await operator.ListDeadLetters(request, timeout=CALL_TIMEOUT_S)

    answer = asyncio.run(fetch())
    if not answer.dead_letters:
        typer.echo("no dead letters" if closed else "no open dead letters", err=True)
        return
    output = console()
    for group in answer.groups:
        output.print(_group_line(group), soft_wrap=True)
    output.print()
    for line in columns(_letter_titles(), [_letter_cells(letter) for letter in answer.dead_letters]):
        output.print(line, soft_wrap=True)
    if answer.next_page_token:
        typer.echo(f"these are the oldest {limit}; --limit shows more", err=True)
    if not all(letter.HasField("close_time") for letter in answer.dead_letters):
        typer.echo(WHAT_TO_DO, err=True)


@deadletter_commands.command()
def retry(
    letter: Letter,
    reason: Reason,
    force: Annotated[
        bool,
        typer.Option("--force", help="Also where the participant may have forgotten the key, and could do it twice."),
    ] = False,
    coordinator: Coordinator = DEFAULT_COORDINATOR,
) -> None:
    """Call again what is parked, with a fresh budget."""

    async def send() -> Saga:
        async with operator_at(coordinator) as operator:
            request = RetryDeadLetterRequest(
                dead_letter_id=letter, reason=reason, forced=force, claimed_actor=login_name()
            )
            return (await operator.RetryDeadLetter(request, timeout=CALL_TIMEOUT_S)).saga

    saga = asyncio.run(send())
    typer.echo(f"dead letter {cut(letter, 256)} closed: it is called again")
    typer.echo(_how_it_goes_on(saga))


@deadletter_commands.command()
def resolve(
    letter: Letter,
    found: Annotated[Found, typer.Argument(help="What you found.", show_default=False)],
    reason: Reason,
    response: Annotated[
        str,
        typer.Option("--response", metavar="JSON|@FILE", help="The action's response, where it happened and is read."),
    ] = "",
    coordinator: Coordinator = DEFAULT_COORDINATOR,
) -> None:
    """Settle what is parked by what you found. The participant is asked first where it can tell."""
    text = read_text(response, "the response") if response else ""

    async def send() -> Saga:
        given = await _response(coordinator, letter, text) if text else None
        async with operator_at(coordinator) as operator:
            request = ResolveDeadLetterRequest(
                dead_letter_id=letter,
                resolution=Resolution.Value(f"RESOLUTION_{found.name}"),
                reason=reason,
                response=given,
                claimed_actor=login_name(),
            )
            return (await operator.ResolveDeadLetter(request, timeout=ASKING_TIMEOUT_S)).saga

    saga = asyncio.run(send())
    typer.echo(f"dead letter {cut(letter, 256)} closed: {found.value.replace('-', ' ')}")
    typer.echo(_how_it_goes_on(saga))


async def _response(coordinator: str, letter_id: str, text: str) -> Any:
    """The response in the type of the parked action's method, as the saga's own definition describes it."""
    saga_id = letter_id.partition("/")[0]  # ids of sagas hold no slash
    async with sagas_at(coordinator) as sagas:
        saga = (await sagas.GetSaga(GetSagaRequest(saga_id=saga_id), timeout=CALL_TIMEOUT_S)).saga
        letter = next((each for each in saga.dead_letters if each.dead_letter_id == letter_id), None)
        if letter is None:
            raise CommandError(
                f"saga {cut(saga_id)} has no dead letter {cut(letter_id, 256)}.",
                "`amends deadletter list` shows those there are.",
            )
        if letter.direction != DIRECTION_ACTION:
            raise CommandError(
                "nothing reads this response: only that of a step's action can be given.", "Leave --response out."
            )
        request = GetSagaDefinitionRequest(name=saga.definition_name, version=saga.definition_version)
        definition = (await sagas.GetSagaDefinition(request, timeout=CALL_TIMEOUT_S)).definition
    return response_from_json(definition, letter.method, text)


def _how_it_goes_on(saga: Saga) -> str:
    saga_id = cut(saga.saga_id)
    return f"saga {saga_id} is {saga_state(saga)}; see how it goes on with `amends saga get {saga_id}`"


def _group_line(group: DeadLetterGroup) -> Text:
    """How many of one kind: "412 of PaymentsService/Void, UNAVAILABLE"."""
    line = Text(f"{group.dead_letter_count:>5} ", BAD)
    line.append(f"of {cut(_short(group.method), 2 * LONGEST_NAME)}" if group.method else "of whole sagas")
    if group.last_status_code:
        line.append(f", {cut(group.last_status_code, LONGEST_NAME)}")
    line.append(f"  {enum_word(DeadLetter.Reason.DESCRIPTOR, group.reason)}", QUIET)
    return line.append(f"  since {instant(group.oldest_open_time)}", QUIET)


def _short(method: str) -> str:
    """A method's name without its package."""
    service, _, name = method.rpartition("/")
    return f"{service.rpartition('.')[2]}/{name}"


def _letter_titles() -> list[str]:
    return ["DEAD LETTER", "SAGA", "CALL", "REASON", "OPENED", "SAID"]


def _letter_cells(letter: DeadLetter) -> list[Text]:
    side = enum_word(Direction.DESCRIPTOR, letter.direction).lower()
    call = f"{letter.step} {side}" if letter.step else "the saga as a whole"
    closed = "closed: " if letter.HasField("close_time") else ""
    return [
        Text(cut(letter.dead_letter_id, 256), "bold"),
        Text(cut(letter.saga_id)),
        Text(cut(call, 2 * LONGEST_NAME)),
        Text(f"{closed}{enum_word(DeadLetter.Reason.DESCRIPTOR, letter.reason)}"),
        Text(instant(letter.open_time)),
        Text(" ".join(_said(letter)), QUIET),
    ]


def _said(letter: DeadLetter) -> Iterator[str]:
    if letter.last_status_code:
        yield cut(letter.last_status_code, LONGEST_NAME)
    if letter.last_error:
        yield cut(letter.last_error)
