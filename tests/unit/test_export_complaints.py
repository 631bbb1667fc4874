"""What exporters complain of reaches our log, but never the key that a backend wants."""

from __future__ import annotations

import pytest

from amends_coordinator.telemetry.exports import without_headers


@pytest.mark.parametrize("headers", ["api-key s3cret", "a=b,api-key s3cret", "api-key=s3cret=", "api-key s3cret,a=b"])
def test_headers_are_never_quoted(monkeypatch: pytest.MonkeyPatch, headers: str) -> None:
    """OpenTelemetry quotes a header that it can't read, whole or the part that is wrong."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", headers)
    for quoted in (headers, *headers.split(",")):
        assert "s3cret" not in without_headers(f"Header format invalid! {quoted}")


def test_all_else_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing secret is set nothing is left out."""
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_HEADERS", raising=False)
    assert without_headers("failed to connect to all addresses") == "failed to connect to all addresses"
