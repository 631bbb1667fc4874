"""`python -m shop.demo`: plays the four orders, checks the books, ends with one line and exit code 0 if all agrees."""

from __future__ import annotations

import asyncio
import signal
import sys
from typing import TYPE_CHECKING

from amends import AmendsError, SagaClient
from amends.cli import show
from shop.demo.audit import Finding, audit
from shop.demo.books import Books, read_books
from shop.demo.claims import Claim, claim_of
from shop.demo.errors import DemoFailedError
from shop.demo.ledger import QUERIES
from shop.demo.play import play
from shop.demo.show import comparison, last_line, rows_as_table
from shop.demo.stage import CHECKOUT, Stage, fresh_stage
from shop.demo.stories import HOLDS, STORIES, unmet_expectations

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

INTERRUPTED = 130


async def run(console: Console) -> int:
    """The whole demo; answers the exit code."""
    _end_on_signals()
    async with fresh_stage() as stage:
        with console.status("starting the coordinator and five services"):
            await stage.start(HOLDS)
        console.print(f"The coordinator listens on {stage.address}; data in {stage.data.relative_to(CHECKOUT)}")
        console.print(f"The ledger is {stage.ledger.place}")
        async with SagaClient(stage.address) as client:
            claims = [claim_of(await play(stage, client, story, console)) for story in STORIES]
        books = read_books(stage.data)
        findings = audit(claims, books) + unmet_expectations(STORIES, claims, books)
        _report(console, claims, books, findings)
        _show_ledger(console, stage, claims[-1].saga_id)
    print(last_line(claims, findings), flush=True)
    return 1 if findings else 0


def _end_on_signals() -> None:
    # Ending early is a cancellation, so that every `finally` runs and no process is left behind.
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("the demo must run as an asyncio task: use asyncio.run")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)


def _report(console: Console, claims: Sequence[Claim], books: Books, findings: Sequence[Finding]) -> None:
    console.print()
    console.print(comparison(claims, books, findings))
    for finding in findings:
        console.print(f"[bold red]{finding.subject}[/]: {finding.text}")


def _show_ledger(console: Console, stage: Stage, saga_id: str) -> None:
    console.print(f"\nThe ledger's rows of {saga_id}, as SQL shows them:")
    for sql in QUERIES:
        console.print(sql.replace(":saga_id", f"'{saga_id}'"), style="cyan", highlight=False)
        columns, rows = stage.ledger.select(sql, saga_id)
        console.print(rows_as_table(columns, rows))


def main() -> int:
    """Runs the demo in the terminal."""
    console = show.console()
    try:
        return asyncio.run(run(console))
    except (asyncio.CancelledError, KeyboardInterrupt):
        console.print("demo: stopped before its end; every process was ended")
        return INTERRUPTED
    except (DemoFailedError, AmendsError) as failure:
        console.print(f"demo: failed: {failure}", style="red", markup=False)
        return 1


if __name__ == "__main__":
    sys.exit(main())
