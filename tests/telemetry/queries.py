"""What deploy/ asks Prometheus: the alerts, the dashboard's queries, and of which series and labels each speaks."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

CHECKOUT = Path(__file__).resolve().parent.parent.parent
DEPLOY = CHECKOUT / "deploy"
ALERTS = DEPLOY / "alerts.yaml"
ALERTS_TEST = DEPLOY / "alerts_test.yaml"
DASHBOARD = DEPLOY / "grafana" / "amends.json"

GIVEN = frozenset({"job", "instance", "le"})
"""Labels that Prometheus itself puts on a series."""

_ALERT = re.compile(r"^      - alert: (?P<name>\w+)\n(?P<body>(?:^(?:        .*)?\n)+)", re.MULTILINE)
_EXPRESSION = re.compile(r"^        expr: (?:>-\n(?P<folded>(?:^          .*\n)+)|(?P<line>.*)\n)", re.MULTILINE)
_RUNBOOK = re.compile(r"^          runbook: (?P<link>.*)$", re.MULTILINE)
_SERIES = re.compile(r"\b(?P<name>(?:amends|process)_\w+)(?:\{(?P<matchers>[^}]*)\})?")
_MATCHER = re.compile(r'(?P<label>\w+)\s*(?P<how>=~|!~|!=|=)\s*"(?P<value>[^"]*)"')
_GROUPED = re.compile(r"\b(?:by|on|group_left) \((?P<labels>[\w, ]*)\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One rule of alerts.yaml."""

    name: str
    expression: str
    runbook: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a query asks of: names of series, the labels that it names, and the values it wants some to have."""

    series: frozenset[str]
    labels: frozenset[str]
    values: frozenset[tuple[str, str]]


def alerts(text: str) -> list[Alert]:
    """The rules in a file that is written as alerts.yaml is; promtool judges whether it is YAML."""
    found: list[Alert] = []
    for rule in _ALERT.finditer(text):
        expression, runbook = _EXPRESSION.search(rule["body"]), _RUNBOOK.search(rule["body"])
        assert expression is not None, f"{rule['name']} has no expression"
        assert runbook is not None, f"{rule['name']} has no runbook"
        words = (expression["folded"] or expression["line"]).split()
        found.append(Alert(name=rule["name"], expression=" ".join(words), runbook=runbook["link"]))
    return found


def dashboard_queries() -> Iterator[str]:
    """The dashboard's queries, with Grafana's variables filled in as Grafana does."""
    panel: dict[str, Any]  # Any: as JSON has it
    for panel in json.loads(DASHBOARD.read_text("utf-8"))["panels"]:
        for target in panel.get("targets", ()):
            yield target["expr"].replace("$__rate_interval", "1m").replace("$job", ".*")


def asked(query: str) -> Asked:
    """What a query speaks of. Alternatives of a pattern count one by one; labels that Prometheus gives are left out."""
    series = {found["name"] for found in _SERIES.finditer(query)}
    matchers = [match for found in _SERIES.finditer(query) for match in _MATCHER.finditer(found["matchers"] or "")]
    grouped = {label.strip() for found in _GROUPED.finditer(query) for label in found["labels"].split(",")}
    labels = ({match["label"] for match in matchers} | grouped) - GIVEN - {""}
    values = {
        (match["label"], value)
        for match in matchers
        if match["label"] not in GIVEN
        for value in match["value"].split("|")
    }
    return Asked(series=frozenset(series), labels=frozenset(labels), values=frozenset(values))
