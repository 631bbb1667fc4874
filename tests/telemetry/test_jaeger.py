"""A real Jaeger, behind a real collector with deploy/collector.yaml: it has the trace that the participants were told.

Jaeger's one program is both: with our file it is the collector, and with another one the store and its query API.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from tests.scenarios.inside import inside
from tests.scenarios.raw import raw_steps
from tests.telemetry.desk import NO, run
from tests.telemetry.page import free_port, page_at
from tests.telemetry.queries import ALERTS, DEPLOY, alerts, asked
from tests.waiting import eventually, pause

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from tests.scenarios.raw import Seen

pytestmark = pytest.mark.telemetry

NOT_TESTED = (
    "no real Jaeger was asked: there is no jaeger on the PATH, and AMENDS_JAEGER names none (with Go, in an empty "
    "module: go get -tool github.com/jaegertracing/jaeger/cmd/jaeger@v1.76.0 && go build -o jaeger "
    "github.com/jaegertracing/jaeger/cmd/jaeger, ten minutes of processor time)"
)
QUIET = ("--set", "service.telemetry.metrics.level=none")
"""Its own metrics would take a port of their own."""

STORE = """
extensions:
  jaeger_storage:
    backends:
      memory:
        memory:
          max_traces: 1000
  jaeger_query:
    storage:
      traces: memory
    http:
      endpoint: 127.0.0.1:{query}
    grpc:
      endpoint: 127.0.0.1:{query_grpc}
receivers:
  otlp:
    protocols:
      grpc:
        endpoint: 127.0.0.1:{otlp}
exporters:
  jaeger_storage_exporter:
    trace_storage: memory
service:
  extensions: [jaeger_storage, jaeger_query]
  pipelines:
    traces:
      receivers: [otlp]
      exporters: [jaeger_storage_exporter]
"""


@asynccontextmanager
async def jaeger(folder: Path, name: str, configuration: str) -> AsyncGenerator[None]:
    """The program with a configuration, once it says that it runs."""
    program = os.environ.get("AMENDS_JAEGER") or shutil.which("jaeger")
    if program is None:
        pytest.skip(NOT_TESTED)
    file, log = folder / f"{name}.yaml", folder / f"{name}.log"
    file.write_text(configuration)
    with log.open("wb") as said:
        process = await asyncio.create_subprocess_exec(program, "--config", str(file), *QUIET, stdout=said, stderr=said)
    try:
        await eventually(
            lambda: b"Everything is ready" in log.read_bytes() or process.returncode is not None,
            what=f"{name} runs",
            bound_s=60,
        )
        assert process.returncode is None, log.read_text()
        yield
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def trace_at(port: int, trace_id: str, *, span_count: int) -> list[dict[str, Any]]:  # Any: Jaeger's JSON
    """A trace by its id, once it has so many spans; pytest's own timeout bounds it."""

    def ask() -> list[dict[str, Any]]:
        try:
            with urlopen(f"http://127.0.0.1:{port}/api/traces/{trace_id}", timeout=10) as answer:
                return [span for trace in json.load(answer)["data"] for span in trace["spans"]]
        except HTTPError:  # it doesn't know the trace yet
            return []

    while len(spans := await asyncio.to_thread(ask)) < span_count:
        await pause()
    return spans


def ids_told(seen: Seen) -> tuple[str, str]:
    """The trace and the span that a call named."""
    _, trace_id, span_id, _ = seen.metadata["traceparent"].split("-")
    return trace_id, span_id


async def test_jaeger_has_what_the_participants_were_told(tmp_path: Path) -> None:
    """Each call that came in is a span of the one trace, below the saga's; and behind the collector metrics have the
    names that the alerts ask for.
    """
    ports = {name: free_port() for name in ("otlp", "query", "query_grpc")}
    taking, page = free_port(), free_port()
    forwarding = (DEPLOY / "collector.yaml").read_text("utf-8")
    for there, here in (("0.0.0.0:4317", taking), ("0.0.0.0:4318", free_port()), ("0.0.0.0:8889", page)):
        forwarding = forwarding.replace(there, f"127.0.0.1:{here}")
    forwarding = forwarding.replace("jaeger:4317", f"127.0.0.1:{ports['otlp']}")
    exporting: dict[str, object] = {"otlp_endpoint": f"http://127.0.0.1:{taking}", "metrics_interval_s": 0.2}
    async with (
        jaeger(tmp_path, "store", STORE.format(**ports)),
        jaeger(tmp_path, "collector", forwarding),
        inside(tmp_path, **exporting) as coordinator,
        raw_steps({"b": [NO]}) as participant,
    ):
        await coordinator.announce("steps", participant.address)
        await run(coordinator, "order-1043")
        (trace_id,) = {ids_told(seen)[0] for seen in participant.seen}
        spans = await trace_at(ports["query"], trace_id, span_count=1 + len(participant.seen))
        (root,) = (span for span in spans if not span["references"])
        below = [span for span in spans if span is not root]
        assert root["operationName"] == "saga scenario-a-b"
        assert {(span["traceID"], span["spanID"]) for span in below} == {ids_told(seen) for seen in participant.seen}
        assert {span["references"][0]["spanID"] for span in below} == {root["spanID"]}
        sides = {(tag(span, "amends.step"), tag(span, "amends.direction")) for span in below}
        assert sides == {("a", "action"), ("b", "action"), ("a", "compensation")}
        assert tag(root, "amends.saga.state") == "COMPENSATED"
        while "amends_saga_ended_total" not in (exported := {name for name, _ in await page_at(page)}):
            await pause()
    wanted = {name for rule in alerts(ALERTS.read_text("utf-8")) for name in asked(rule.expression).series}
    assert wanted - exported == {"amends_api_errors_total", "amends_saga_unproven_total"}, "neither has happened"


def tag(span: dict[str, Any], key: str) -> Any:  # Any: Jaeger's JSON
    """One attribute of a span, as Jaeger has it."""
    return next(each["value"] for each in span["tags"] if each["key"] == key)
