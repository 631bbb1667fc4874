"""Reads the page that a coordinator serves for Prometheus, as Prometheus reads it."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, TypeAlias
from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families

if TYPE_CHECKING:
    from collections.abc import Mapping

Page: TypeAlias = "Mapping[tuple[str, frozenset[tuple[str, str]]], float]"
"""Every value, by the series' name and labels."""

READ_BOUND_S = 10.0
SCOPE = "otel_scope_"
"""Labels that OpenTelemetry's exporter puts on everything; left out here."""


async def page_at(port: int) -> Page:
    """What the page on a loopback port says now."""
    return await asyncio.to_thread(_read, port)


def value(page: Page, name: str, **labels: str) -> float:
    """One value; 0 where there is no such series."""
    return page.get((name, frozenset(labels.items())), 0.0)


def free_port() -> int:
    """A port that nobody has just now."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


def _read(port: int) -> Page:
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=READ_BOUND_S) as answer:
        text: str = answer.read().decode()
    return {
        (sample.name, frozenset((key, text) for key, text in sample.labels.items() if not key.startswith(SCOPE))): (
            sample.value
        )
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
