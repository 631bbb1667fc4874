"""Puts the commands together; each lives in the module of its subject."""

from __future__ import annotations

import io
import os
import sys
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version

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
app.command()(dev)
app.command()(serve)
app.command()(migrate)
app.command()(generate)
app.command()(check)
saga_commands.command("list")(list_sagas)
saga_commands.command()(watch)
saga_commands.command()(abort)
saga_commands.command()(run_now)
saga_commands.command()(terminate)
app.add_typer(saga_commands, name="saga")
app.add_typer(definition_commands, name="definition")
app.add_typer(participant_commands, name="participant")
app.add_typer(deadletter_commands, name="deadletter")


@app.command()
def version() -> None:
    """Print the version of amends."""
    try:
        typer.echo(f"amends {installed_version('amends')}")
    except PackageNotFoundError:
        typer.echo("amends, not installed")


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
