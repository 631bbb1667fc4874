"""Puts the commands together; each lives in the module of its subject."""

from __future__ import annotations

import io
import os
import sys
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version
from typing import Annotated

import typer

from amends.cli.check import check
from amends.cli.deadletter import deadletter_commands
from amends.cli.definition import definition_commands
from amends.cli.dev import dev
from amends.cli.errors import PlainErrors
from amends.cli.generate import generate
from amends.cli.listing import list_sagas
from amends.cli.node import migrate, serve
from amends.cli.participant import participant_commands
from amends.cli.saga import saga_commands
from amends.cli.saga_verbs import abort, run_now, terminate
from amends.cli.watching import watch

app = typer.Typer(
    name="amends",
    cls=PlainErrors,
    help="Run a saga coordinator, generate typed stubs for your services, check saga definitions, start sagas, look at"
    " them and repair them, and make services known that don't announce themselves.",
    no_args_is_help=True,
    add_completion=False,
    # Plain help and plain errors: they are read in terminals, logs and pipes alike.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
# A list of commands has a line for each: `short_help` is what fits into it.
app.command(short_help="Run a coordinator to play with, and print each saga.")(dev)
app.command(short_help="Run a coordinator until it is told to stop.")(serve)
app.command(short_help="Bring the ledger's tables to this release's schema.")(migrate)
app.command(short_help="Generate Python modules and stubs from your protos.")(generate)
app.command(short_help="Check saga definitions, and say what each step does.")(check)
saga_commands.command("list", short_help="List sagas, newest first; options choose which.")(list_sagas)
saga_commands.command(short_help="Watch a saga until it ends, or a list of sagas.")(watch)
saga_commands.command(short_help="Have a saga rolled back, if that can still be.")(abort)
saga_commands.command()(run_now)
saga_commands.command(short_help="Stop a saga: then only what a person retries is called.")(terminate)
app.add_typer(saga_commands, name="saga")
app.add_typer(definition_commands, name="definition")
app.add_typer(participant_commands, name="participant", short_help="Look at participants, add and remove static ones.")
app.add_typer(deadletter_commands, name="deadletter")


def _installed() -> str:
    try:
        return f"amends {installed_version('amends')}"
    except PackageNotFoundError:
        return "amends, not installed"


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(_installed())
        raise typer.Exit


@app.callback()
def options(
    show_version: Annotated[
        bool, typer.Option("--version", help="Print the version of amends.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """What the program itself can be asked, before any command."""


@app.command()
def version() -> None:
    """Print the version of amends."""
    typer.echo(_installed())


def run() -> int:
    """Run the command that the process was started with; the exit code."""
    # What gRPC's library has to say about a connection, the command says itself.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A character that the terminal can't show must not end a command.
            stream.reconfigure(errors="backslashreplace")
    try:
        app()
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    return 0
