"""The commands that run a coordinator on this machine, `serve` and `migrate`; its code is loaded only by them."""

from __future__ import annotations

import signal
from collections.abc import Generator
from contextlib import contextmanager
from enum import StrEnum
from typing import Annotated

import typer

from amends.cli.errors import CommandError

OWN_PACKAGES = {"amends", "amends_coordinator"}

LedgerUrl = Annotated[
    str | None,
    typer.Option(help="Where the ledger is: sqlite:///… or postgresql://… (AMENDS_LEDGER_URL).", metavar="URL"),
]


class LogLevel(StrEnum):
    """The least important lines to log."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    """How log lines look."""

    CONSOLE = "console"
    JSON = "json"


def serve(
    host: Annotated[str | None, typer.Option(help="The address to listen on (AMENDS_HOST).")] = None,
    port: Annotated[int | None, typer.Option(help="The port to listen on; 0 takes a free one (AMENDS_PORT).")] = None,
    ledger_url: LedgerUrl = None,
    insecure: Annotated[
        bool | None, typer.Option("--insecure", help="Listen where other machines reach it, without TLS.")
    ] = None,
    log_level: Annotated[LogLevel | None, typer.Option(help="The least important lines to log.")] = None,
    log_format: Annotated[LogFormat | None, typer.Option(help="How log lines look.")] = None,
) -> None:
    """Run a coordinator until it is told to stop (Ctrl-C or SIGTERM).

    What is not given here comes from the environment: every setting is AMENDS_ and its name.
    """
    # Until the coordinator listens to it, Ctrl-C ends the process at once: as an exception it would come in the middle
    # of loading some library, which may drop it.
    interrupted = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        with coordinator_extra():
            from amends_coordinator import bootstrap
        code = bootstrap.main(
            host=host,
            port=port,
            ledger_url=ledger_url,
            insecure=insecure,
            log_level=log_level and log_level.value,
            log_format=log_format and log_format.value,
        )
    finally:
        signal.signal(signal.SIGINT, interrupted)
    raise typer.Exit(code)


def migrate(ledger_url: LedgerUrl = None) -> None:
    """Bring the ledger's tables to the schema of this release; safe to repeat."""
    with coordinator_extra():
        from amends_coordinator import bootstrap
    try:
        typer.echo(bootstrap.migrate(ledger_url))
    except (bootstrap.SettingsError, bootstrap.LedgerError) as error:
        raise CommandError(f"the ledger can't be migrated: {error}") from error


@contextmanager
def coordinator_extra() -> Generator[None]:
    """Says in one sentence that what the coordinator needs is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        missing = (error.name or "").split(".")[0]
        if missing in OWN_PACKAGES:
            raise
        raise CommandError(
            f"the coordinator needs its extra (no module {missing}): pip install 'amends[coordinator]'"
        ) from error
