"""The alerts do what they say, speak only of what is exported, and each has a runbook whose commands work."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import shutil
import sqlite3
import subprocess
import sys
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode
from urllib.request import urlopen

import psycopg
import pytest

from amends.v1.error_reason_pb2 import ErrorReason
from amends_coordinator.telemetry import names
from amends_coordinator.telemetry.metrics import OUTCOMES
from tests.telemetry.desk import STUCK, Desk, desk
from tests.telemetry.page import Page, free_port, page_at, value
from tests.telemetry.queries import ALERTS, ALERTS_TEST, CHECKOUT, DEPLOY, alerts, asked, dashboard_queries
from tests.waiting import pause

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.telemetry

PROMTOOL_BOUND_S = 60
STEPS = ("**Detect.**", "**Identify", "**Resolve")
RUNBOOKS = CHECKOUT / "docs" / "operating.md"
NOT_JUDGED = "the alert rules were not judged: there is no promtool on the PATH (Debian's package prometheus has it)"
NOT_SCRAPED = "no real Prometheus has read the page: there is none on the PATH (Debian's package prometheus)"
CHANGES = {"retry", "resolve", "run-now"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Runbook:
    """A section of docs/operating.md about one alert."""

    name: str
    text: str

    def blocks(self, language: str) -> Iterator[str]:
        """Its blocks of code in one language."""
        for found in re.finditer(rf"^```{language}\n(.*?)^```$", self.text, re.MULTILINE | re.DOTALL):
            yield found[1]


def runbooks() -> list[Runbook]:
    """Every runbook."""
    sections = re.split(r"^(?=##+ )", RUNBOOKS.read_text("utf-8"), flags=re.MULTILINE)
    titled = ((re.match(r"### (Amends\w+)\n", section), section) for section in sections)
    return [Runbook(name=title[1], text=section) for title, section in titled if title is not None]


def promtool(*arguments: str) -> None:
    """Run promtool, where it is."""
    program = shutil.which("promtool")
    if program is None:
        pytest.skip(NOT_JUDGED)
    done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False, timeout=PROMTOOL_BOUND_S)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_rules_do_what_they_say() -> None:
    """`compensation_failed` fires and ends with the repair; so does every other alert, by Prometheus's own judge."""
    promtool("test", "rules", str(ALERTS_TEST))
    text = ALERTS_TEST.read_text("utf-8")
    assert {alert.name for alert in alerts(ALERTS.read_text("utf-8"))} == set(re.findall(r"alertname: (\w+)", text))


def test_the_dashboard_asks_in_promql(tmp_path: Path) -> None:
    """Every query of the dashboard, and Prometheus's own configuration."""
    rules = [{"record": f"panel:{number}", "expr": query} for number, query in enumerate(dashboard_queries())]
    written = tmp_path / "dashboard.yaml"
    written.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    promtool("check", "rules", str(written))
    promtool("check", "config", str(DEPLOY / "prometheus.yaml"))


def faults(query: str, page: Page) -> Iterator[str]:
    """What a query asks for that the page doesn't have, and values that no label of ours can have."""
    wanted = asked(query)
    exported = {name for name, _ in page}
    labels = {label for name, pairs in page if name in wanted.series for label, _ in pairs}
    yield from (f"no series {name}" for name in wanted.series - exported)
    yield from (f"no label {label}" for label in wanted.labels - labels)
    known = {(label, text) for _, pairs in page for label, text in pairs}
    known |= {(names.LABEL_REASON, name.removeprefix("ERROR_REASON_").lower()) for name in ErrorReason.keys()}  # noqa: SIM118 - an enum's wrapper is no dict
    known |= {(names.LABEL_OUTCOME, outcome) for outcome in OUTCOMES.values()}
    yield from (f"no {label} {text!r}" for label, text in wanted.values - known)


async def page_with_everything(port: int) -> Page:
    """The page once every metric that has a name is on it."""
    metrics = {text.replace(".", "_") for name, text in vars(names).items() if name.startswith("METRIC_")}

    def missing(page: Page) -> set[str]:
        return {metric for metric in metrics if not any(name.startswith(metric) for name, _ in page)}

    while missing(page := await page_at(port)):
        await pause()
    return page


async def test_every_query_is_about_what_is_exported(tmp_path: Path) -> None:
    """Names and labels in alerts and dashboard are those of a real coordinator's page; and nothing that it exports is
    left off the dashboard.
    """
    async with desk(tmp_path) as scene:
        page = await page_with_everything(scene.page_port)
    queries = [*dashboard_queries(), *(alert.expression for alert in alerts(ALERTS.read_text("utf-8")))]
    assert {query: found for query in queries if (found := [*faults(query, page)])} == {}
    shown = {_metric(name) for query in dashboard_queries() for name in asked(query).series}
    assert {_metric(name) for name, _ in page if name.startswith("amends_")} == shown
    assert labels_on(page) == {name.replace(".", "_"): set(labels) for name, labels in names.LABELS.items()}
    for wrong in (
        'amends_saga_ended{outcome="committed"} > 0',
        "sum by (defintion) (amends_saga_started_total)",
        'amends_saga_running{state="compensationfailed"} > 0',
    ):
        assert [*faults(wrong, page)], f"nothing is found wrong with {wrong}"


def labels_on(page: Page) -> dict[str, set[str]]:
    """The labels of each of our metrics that has some, by its name without unit and suffix."""
    metrics = sorted(
        (text.replace(".", "_") for name, text in vars(names).items() if name.startswith("METRIC_")), key=len
    )
    found: dict[str, set[str]] = {}
    for series, pairs in page:
        metric = next((name for name in reversed(metrics) if series.startswith(name)), "")
        if labels := {label for label, _ in pairs} - {"le"}:
            found.setdefault(metric, set()).update(labels)
    return {metric: labels for metric, labels in found.items() if metric}


def _metric(series: str) -> str:
    return re.sub(r"_(bucket|sum|count)$", "", series)


def test_every_alert_has_its_runbook() -> None:
    """And every runbook its alert; each says how to detect, identify and resolve, and is in the table with its link."""
    rules, pages = alerts(ALERTS.read_text("utf-8")), runbooks()
    assert [rule.name for rule in rules] == [page.name for page in pages]
    table = RUNBOOKS.read_text("utf-8")
    for rule, page in zip(rules, pages, strict=True):
        assert rule.runbook == f"docs/operating.md#{rule.name.lower()}"
        assert f"| [{rule.name}](#{rule.name.lower()}) |" in table
        assert all(step.lower() in page.text.lower() for step in STEPS), f"{rule.name} leaves out a step"


async def test_the_runbooks_commands_work(tmp_path: Path) -> None:
    """Each command of each runbook, as it stands there, at a coordinator with a saga that is stuck."""
    async with desk(tmp_path) as scene:
        commands = [line for runbook in runbooks() for block in runbook.blocks("sh") for line in block.splitlines()]
        ours = [*dict.fromkeys(command for command in commands if command.startswith("amends "))]
        assert ours
        await try_ours(ours, scene)
        for command in dict.fromkeys(command for command in commands if command not in ours):
            await try_other(command, scene)
        await asyncio.to_thread(try_statements, tmp_path / "ledger.db")


async def try_ours(commands: list[str], scene: Desk) -> None:
    """Commands of `amends`. Looking must succeed; what changes something may be refused: another runbook did it."""
    arguments = [shlex.split(filled_in(command, scene))[1:] for command in commands]
    running = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.telemetry.commands"),
        env={**os.environ, "AMENDS_COORDINATOR": scene.coordinator.address},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    said, _ = await running.communicate(json.dumps(arguments).encode())
    for command, words, (exit_code, output) in zip(commands, arguments, json.loads(said), strict=True):
        changes = not CHANGES.isdisjoint(words)
        assert exit_code == 0 or (changes and exit_code == 1), f"{command}\n{output}"


async def try_other(command: str, scene: Desk) -> None:
    """A command of another program, where there is that."""
    if shutil.which(command.split()[0]) is None:
        return
    running = await asyncio.create_subprocess_shell(
        filled_in(command, scene), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output, _ = await running.communicate()
    assert (running.returncode, output != b"") == (0, True), f"{command}\n{output.decode()}"


def filled_in(command: str, scene: Desk) -> str:
    """A command with what a reader puts in place of its capitals, and where this coordinator is."""
    given = command.replace("LETTER", scene.letter).replace("ID", STUCK)
    given = given.replace("localhost:7070", scene.coordinator.address)
    return given.replace("localhost:9464", f"localhost:{scene.page_port}")


def try_statements(ledger: Path) -> None:
    """Every statement, on SQLite."""
    with closing(sqlite3.connect(f"file:{ledger}?mode=ro", uri=True)) as connection:
        for statement in statements():
            connection.execute(statement).fetchall()


def statements() -> list[str]:
    """All statements of all runbooks."""
    return [statement for runbook in runbooks() for statement in runbook.blocks("sql")]


def test_the_runbooks_statements_work_on_postgresql(postgres_ledger: str) -> None:
    """The same statements, on the other database."""
    assert statements()
    with psycopg.connect(postgres_ledger) as connection:
        for statement in statements():
            connection.execute(statement.encode()).fetchall()


@asynccontextmanager
async def prometheus(folder: Path, target_port: int) -> AsyncGenerator[Callable[[str], Any]]:  # Any: JSON
    """A real Prometheus with our rules that reads a page every second; what is yielded asks its API."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip(NOT_SCRAPED)
    port = free_port()
    text = (DEPLOY / "prometheus.yaml").read_text("utf-8").replace("15s", "1s")
    text = text.replace("localhost:9464", f"127.0.0.1:{target_port}")
    (folder / "prometheus.yaml").write_text(text)
    shutil.copy(ALERTS, folder)
    places = ["--config.file", folder / "prometheus.yaml", "--storage.tsdb.path", folder / "data"]
    with (folder / "prometheus.log").open("wb") as said:
        process = await asyncio.create_subprocess_exec(
            program, *map(str, places), "--web.listen-address", f"127.0.0.1:{port}", stdout=said, stderr=said
        )

    def ask(path: str) -> Any:  # Any: JSON
        with urlopen(f"http://127.0.0.1:{port}/api/v1/{path}", timeout=10) as answer:
            return json.load(answer)["data"]

    try:
        yield ask
    finally:
        process.terminate()
        await process.wait()


async def test_a_real_prometheus_reads_fires_and_is_calmed(tmp_path: Path) -> None:
    """It reads the page under the names that are asked for; the alerts of a stuck saga fire, and end when a person has
    settled it.
    """
    wanted = {"AmendsCompensationFailed", "AmendsDeadLetterOpen"}
    folder = tmp_path / "prometheus"
    folder.mkdir()

    def firing() -> set[str]:
        try:
            return {each["labels"]["alertname"] for each in ask("alerts")["alerts"] if each["state"] == "firing"}
        except OSError:  # it isn't up yet
            return set()

    async with desk(tmp_path) as scene, prometheus(folder, scene.page_port) as ask:
        while not wanted <= await asyncio.to_thread(firing):
            await pause()
        for query in dashboard_queries():
            answered = await asyncio.to_thread(ask, f"query?{urlencode({'query': query})}")
            assert answered["resultType"] == "vector", query
        await scene.retry()
        while wanted & await asyncio.to_thread(firing):
            await pause()
        page = await page_at(scene.page_port)
        assert value(page, "amends_saga_running", state="compensation_failed") == 0
