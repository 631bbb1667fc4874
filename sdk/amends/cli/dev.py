"""The command `dev`: a coordinator to play with, in one process on SQLite, that prints what happens as it happens."""

from __future__ import annotations

import signal
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated
from uuid import uuid4

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
        with playground(keep=keep, chosen=ledger_url) as ledger:
            commentary = Commentary(ledger=ledger.said)
            code = bootstrap.main(
                ready=commentary.ready,
                tell=commentary.tell,
                port=port,
                ledger_url=ledger.url,
                ledger_name=ledger.name,
                participant_lease_s=PARTICIPANT_LEASE_S,
                stop_grace_s=STOP_GRACE_S,
                log_level="warning",
                log_format="console",
            )
    finally:
        signal.signal(signal.SIGINT, interrupted)
    raise typer.Exit(code)


@dataclass(frozen=True, slots=True, kw_only=True)
class Playground:
    """The ledger to play with: its URL, its name (None: the usual one), and what to say of it."""

    url: str
    name: str | None
    said: str


@contextmanager
def playground(*, keep: bool, chosen: str) -> Generator[Playground]:
    """The ledger, for as long as it is played with."""
    if chosen:
        yield Playground(url=chosen, name=None, said="the ledger is the one you gave")
    elif keep:
        yield Playground(url=f"sqlite:///{KEPT}", name=None, said=f"the ledger is kept in {KEPT}")
    else:
        with tempfile.TemporaryDirectory(prefix="amends-dev-") as folder:
            # A name of its own: participants that go on running know keys by ledger, and ids will be used again.
            name = f"dev-{uuid4().hex[:12]}"
            said = "the ledger is forgotten at the end (--keep keeps it)"
            yield Playground(url=f"sqlite:///{folder}/ledger.db", name=name, said=said)
