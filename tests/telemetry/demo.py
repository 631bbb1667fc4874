"""`make trace-demo`: three orders of the shop as a tracing backend sees them.

One goes through, one is undone, and one survives a coordinator that is killed in the middle. Coordinator and services
are processes that export to a receiver in this one. The ledger says which spans there have to be: one for each saga and
one for each attempt of each call; the receiver says which there are, and under which others they hang.
"""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.tree import Tree

from amends import SagaClient
from amends.cli import show
from amends.v1 import saga_pb2
from shop.demo.play import play
from shop.demo.stage import fresh_stage
from shop.demo.stories import HOLDS, STORIES
from tests.telemetry.receiver import Receiver, receiver
from tests.waiting import pause

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from amends.v1.saga_pb2 import Saga
    from tests.telemetry.receiver import Span

PLAYED = (STORIES[0], STORIES[1], STORIES[3])
ARRIVAL_BOUND_S = 20.0
CLIENT_KIND = 3
DIRECTIONS = {
    saga_pb2.DIRECTION_ACTION: "action",
    saga_pb2.DIRECTION_COMPENSATION: "compensation",
    saga_pb2.DIRECTION_LOOKUP: "lookup",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """One saga's spans, and what is wrong with them."""

    saga_id: str
    spans: Sequence[Span]
    missing: Sequence[str]
    orphans: Sequence[Span]

    @property
    def trace_ids(self) -> set[str]:
        """Of its spans; one if it is whole."""
        return {span.trace_id for span in self.spans}


def trace_of(saga: Saga, sink: Receiver) -> Trace:
    """What has arrived of a saga, held against the ledger's own rows."""
    about = [span for span in sink.spans if span.attributes.get("amends.saga.id") == saga.saga_id]
    known = {span.span_id for span in about}
    wanted = {
        f"{intent.step}/{DIRECTIONS[intent.direction]}#{attempt.number}"
        for intent in saga.intents
        for attempt in intent.attempts
    }
    roots = [span for span in about if span.name.startswith("saga ")]
    seen = {_attempt(span) for span in about if span.kind == CLIENT_KIND}
    missing = sorted(wanted - seen) + ([] if roots else ["the saga itself"])
    orphans = [span for span in about if span.parent_id not in known and span not in roots]
    return Trace(saga_id=saga.saga_id, spans=about, missing=missing, orphans=orphans)


def _attempt(span: Span) -> str:
    return f"{span['amends.step']}/{span['amends.direction']}#{span['amends.attempt']}"


async def arrived(saga: Saga, sink: Receiver) -> Trace:
    """A saga's trace once it is whole, or as it is when the bound is over."""
    end_s = asyncio.get_running_loop().time() + ARRIVAL_BOUND_S
    while True:
        trace = trace_of(saga, sink)
        whole = not trace.missing and not trace.orphans
        if whole or asyncio.get_running_loop().time() > end_s:
            return trace
        await pause()


def as_tree(trace: Trace) -> Tree:
    """The spans as they hang under each other, with where they were made and how long they took."""
    tree = Tree(f"[bold]trace {' '.join(sorted(trace.trace_ids))}[/] of {trace.saga_id}")
    _hang(tree, [span for span in trace.spans if span.name.startswith("saga ")], trace.spans)
    return tree


def _hang(branch: Tree, spans: Sequence[Span], all_spans: Sequence[Span]) -> None:
    for span in sorted(spans, key=lambda each: each.start_ns):
        twig = branch.add(_line(span))
        _hang(twig, [each for each in all_spans if each.parent_id == span.span_id], all_spans)


def _line(span: Span) -> str:
    took_ms = (span.end_ns - span.start_ns) / 1e6
    what = [f"[cyan]{span.service}[/]", f"[{'red' if span.is_error else 'green'}]{span.name}[/]"]
    if "amends.attempt" in span.attributes:
        what.append(_attempt(span))
    what += [str(span.attributes[key]) for key in ("amends.outcome", "amends.saga.state") if key in span.attributes]
    if "amends.node" in span.attributes:
        what.append(f"[dim]by {span['amends.node']}[/]")
    return f"{'  '.join(what)}  {took_ms:.1f} ms"


async def run(console: Console) -> int:
    """Play the orders, show their traces; the exit code."""
    async with receiver() as sink:
        os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = f"http://{sink.address}"
        async with fresh_stage() as stage:
            with console.status("starting the coordinator and five services"):
                await stage.start(HOLDS)
            async with SagaClient(stage.address) as client:
                sagas = [await play(stage, client, story, console) for story in PLAYED]
            with console.status("waiting for the spans"):
                traces = [await arrived(saga, sink) for saga in sagas]
    for trace in traces:
        console.print()
        console.print(as_tree(trace))
        for name in trace.missing:
            console.print(f"[bold red]missing:[/] {name}")
        for span in trace.orphans:
            console.print(f"[bold red]orphan:[/] {_line(span)}")
    return _summary(sagas, traces)


def _summary(sagas: Sequence[Saga], traces: Sequence[Trace]) -> int:
    missing, orphans = sum(len(each.missing) for each in traces), sum(len(each.orphans) for each in traces)
    count = len({trace_id for each in traces for trace_id in each.trace_ids})
    line = f"trace_demo: sagas={len(sagas)} traces={count} spans_missing={missing} orphan_spans={orphans}"
    print(line, flush=True)
    return 0 if count == len(sagas) and not missing and not orphans else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(run(show.console())))
