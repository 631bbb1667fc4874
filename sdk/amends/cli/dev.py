"""The command `dev`: a coordinator to play with, in one process on SQLite, that prints what happens as it happens."""

from __future__ import annotations

import signal
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from amends.cli.commentary import Commentary
from amends.cli.errors import CommandError
from amends.cli.node import coordinator_extra

KEPT = Path(".amends-dev.db")
PARTICIPANT_LEASE_S = 6.0
"""Short, so that a participant that was killed is missed while the one who killed it still looks."""
STOP_GRACE_S = 2.0
"""Short, so that Ctrl-C does not wait for a handler that hangs: its saga is what one looked at."""


def dev(
    port: Annotated[int | None, typer.Option(help="The port to listen on; 0 takes a free one (AMENDS_PORT).")] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help=f"Keep the ledger in {KEPT}, and go on with what is in it.")
    ] = False,
    ledger_url: Annotated[
        str, typer.Option(help="Where the ledger is, instead of a file that is forgotten.", metavar="URL")
    ] = "",
) -> None:
    """Run a coordinator to play with, and print each saga as it happens; Ctrl-C ends it.

    Unless it is told to keep it, its ledger is a file of its own that is deleted at the end.
    """
    if keep and ledger_url:
        raise CommandError("--keep and --ledger-url both say where the ledger is: give one of them.")
    # As for `serve`: until the coordinator listens to it, Ctrl-C ends the process at once.
    interrupted = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        with coordinator_extra():
            from amends_coordinator import bootstrap
        with _ledger(keep=keep, chosen=ledger_url) as (url, what):
            commentary = Commentary(ledger=what)
            code = bootstrap.main(
                ready=commentary.ready,
                tell=commentary.tell,
                port=port,
                ledger_url=url,
                participant_lease_s=PARTICIPANT_LEASE_S,
                stop_grace_s=STOP_GRACE_S,
                log_level="warning",
                log_format="console",
            )
    finally:
        signal.signal(signal.SIGINT, interrupted)
    raise typer.Exit(code)


@contextmanager
def _ledger(*, keep: bool, chosen: str) -> Generator[tuple[str, str]]:
    """The ledger's URL, and what to say of it."""
    if chosen:
        yield chosen, "the ledger is the one you gave"
    elif keep:
        yield f"sqlite:///{KEPT}", f"the ledger is kept in {KEPT}"
    else:
        with tempfile.TemporaryDirectory(prefix="amends-dev-") as folder:
            yield f"sqlite:///{folder}/ledger.db", "the ledger is forgotten at the end (--keep keeps it)"
