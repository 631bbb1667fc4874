"""Settings: defaults as documented, one sentence for each fault, a password never shown."""

from __future__ import annotations

import pytest

from amends_coordinator.settings import Settings, SettingsError, is_loopback, misspelt


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in Settings.model_fields:
        monkeypatch.delenv(f"AMENDS_{name.upper()}", raising=False)


def faults(**given: object) -> list[str]:
    """The sentences about settings that are refused."""
    with pytest.raises(SettingsError) as caught:
        Settings.load(**given)
    return caught.value.faults


def test_defaults() -> None:
    """The defaults that the contract names."""
    settings = Settings.load()
    assert (settings.ledger_url, settings.host, settings.port) == ("sqlite:///amends.db", "127.0.0.1", 7070)
    assert (settings.ledger_name, settings.lease_ttl_s, settings.heartbeat_interval_s) == ("default", 10, 2)
    assert (settings.sweep_interval_s, settings.connect_gate_s, settings.participant_lease_s) == (1, 1, 30)
    assert (settings.max_running_sagas, settings.payload_limit_bytes, settings.stop_grace_s) == (10_000, 2**20, 10)
    assert (settings.log_level, settings.log_format, settings.insecure) == ("info", "console", False)


def test_environment_and_overrides(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment is read; what is given on the command line stands above it."""
    monkeypatch.setenv("AMENDS_PORT", "0")
    monkeypatch.setenv("AMENDS_LEASE_TTL_S", "30")
    assert Settings.load(host=None).port == 0
    assert Settings.load(port=9, host="::1").port == 9
    assert Settings.load().lease_ttl_s == 30


def test_one_sentence_for_each_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """All faults at once, each naming the variable, the value and what is expected."""
    monkeypatch.setenv("AMENDS_PORT", "seventy")
    monkeypatch.setenv("AMENDS_SWEEP_INTERVAL_S", "0")
    found = faults(log_level="loud")
    assert len(found) == 3
    assert any(sentence.startswith("AMENDS_PORT is 'seventy': ") for sentence in found)
    assert all("\n" not in sentence and sentence.endswith(".") for sentence in found)


def test_a_misspelt_variable_is_noticed() -> None:
    """A lease that was set in vain looks as if it had been set. What others set for a service called amends is no
    misspelling (Kubernetes: AMENDS_SERVICE_PORT, AMENDS_PORT_7070_TCP), nor is what the command line reads.
    """
    known = {"AMENDS_PORT": "1", "AMENDS_COORDINATOR": "a:1", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://a:1"}
    others = {"AMENDS_SERVICE_HOST": "a", "AMENDS_SERVICE_PORT": "1", "AMENDS_PORT_7070_TCP_PORT": "1", "PORT": "1"}
    assert misspelt(known | others) == {}
    assert misspelt({"AMENDS_PROT": "1", "AMENDS_LEASE_TTL": "5", "AMENDS_LEDGER_URI": "s3cret", **others}) == {
        "AMENDS_PROT": "AMENDS_PORT",
        "AMENDS_LEASE_TTL": "AMENDS_LEASE_TTL_S",
        "AMENDS_LEDGER_URI": "AMENDS_LEDGER_URL",
    }


def test_what_does_not_go_together() -> None:
    """A heartbeat that comes too rarely would let a healthy node's lease end; two faults are told together."""
    found = faults(lease_ttl_s=2, host="0.0.0.0")  # noqa: S104  # refused: that is the test
    assert [sentence.split()[0] for sentence in found] == ["AMENDS_HEARTBEAT_INTERVAL_S", "AMENDS_HOST"]


def test_the_page_for_prometheus_has_a_port_of_its_own() -> None:
    """One port for both would be reported as taken by somebody else."""
    assert faults(port=9_464, prometheus_port=9_464)[0].startswith("AMENDS_PROMETHEUS_PORT is 9464")


def test_other_machines_only_if_accepted() -> None:
    """Without TLS the coordinator listens on loopback only, unless the operator says otherwise."""
    assert "AMENDS_INSECURE=true" in faults(host="10.0.0.7")[0]
    assert Settings.load(host="10.0.0.7", insecure=True).host == "10.0.0.7"
    assert [is_loopback(host) for host in ("localhost", "127.9.9.9", "::1", "[::1]")] == [True] * 4
    assert not any(is_loopback(host) for host in ("0.0.0.0", "::", "example.org", "127.0.0.1.example.org"))  # noqa: S104  # not bound


def test_password_never_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The database's password never shows, neither in a fault nor where settings are printed."""
    settings = Settings.load(ledger_url="postgresql://amends:hunter2@db/ledger")
    assert "hunter2" not in repr(settings) + str(settings)
    monkeypatch.setenv("AMENDS_LEDGER_URL", "")
    assert "hunter2" not in " ".join(faults(ledger_url=["hunter2"]))


def test_unknown_settings_are_refused() -> None:
    """A misspelt option is told, not ignored."""
    assert faults(prot=1) == ["AMENDS_PROT is no setting of the coordinator: extra inputs are not permitted."]
