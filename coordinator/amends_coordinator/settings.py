"""Everything about a coordinator that can be set, from environment variables that begin with `AMENDS_`."""

from __future__ import annotations

import difflib
import ipaddress
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AliasChoices, Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

if TYPE_CHECKING:
    from collections.abc import Iterable

PREFIX = "AMENDS_"
ALIKE = 0.85
"""So alike are a misspelt variable and the one that was meant, from 0 to 1."""

Seconds = Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)]

_SECRET_FIELDS = frozenset({"ledger_url"})
"""Fields whose value may hold a password: never shown, not even when it is wrong."""


class SettingsError(Exception):
    """The settings can't be used. `faults` has one sentence for each; correct them and start again."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__("\n".join(faults))
        self.faults = faults


class Settings(BaseSettings):
    """The settings of one coordinator process. Each is read from `AMENDS_` + its name in capitals."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="forbid")

    ledger_url: str = Field(default="sqlite:///amends.db", min_length=1, repr=False)
    """Where the ledger is: `sqlite:///file`, `postgresql://user:password@host:port/database`, or `memory:`. It may hold
    a password, so it is never printed. Default: the SQLite file `amends.db` in the working directory."""

    host: str = Field(default="127.0.0.1", min_length=1, max_length=253, pattern=r"^[^\s/]+$")
    """The address to listen on. Default 127.0.0.1; one that other machines reach needs `insecure`, since there is no
    TLS yet."""

    port: int = Field(default=7070, ge=0, le=65_535)
    """The port to listen on; 0 takes a free one, which the line `listening on …` names. Default 7070."""

    insecure: bool = False
    """Whether to listen where other machines reach it although nobody has to prove who they are. Default false."""

    ledger_name: str = Field(default="default", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")
    """The name of the ledger, part of every key's UUID: staging and production may share a participant. Never change it
    while sagas run. Default "default"."""

    node_name: str = Field(default="", pattern=r"^([A-Za-z0-9][A-Za-z0-9._-]{0,63})?$")
    """What this process's incarnations are called in the ledger and in logs, in front of a random part. Default: the
    machine's host name."""

    lease_ttl_s: Seconds = 10.0
    """How long, in seconds, this node may drive its sagas after its last sign of life. Default 10."""

    heartbeat_interval_s: Seconds = 2.0
    """How often, in seconds, this node writes its sign of life; at most a third of `lease_ttl_s`. Default 2."""

    sweep_interval_s: Seconds = 1.0
    """How often, in seconds, the ledger is searched for sagas that are due. Default 1."""

    connect_gate_s: Seconds = 1.0
    """How long, in seconds, a call waits for a ready channel before it counts as not sent. Default 1."""

    abort_grace_s: Seconds = 5.0
    """How long, in seconds, calls under way may go on when their saga begins to roll back; then they are cancelled.
    Default 5."""

    participant_lease_s: Seconds = 30.0
    """How long, in seconds, a participant's announcement holds unless it is renewed. Default 30."""

    secrets_dir: str = Field(default="", max_length=4_096)
    """The directory with the certificates, keys and tokens that static participants name by plain file names. Files are
    read anew when they change. Default: none, so no participant can need one."""

    participants_file: str = Field(default="", max_length=4_096)
    """A TOML file with static participants, which are made known at every start (docs/participants.md). Default:
    none."""

    max_running_sagas: int = Field(default=10_000, ge=1, le=1_000_000)
    """How many sagas are in memory at once, at most half of them for one participant; more wait in the ledger. Default
    10,000."""

    max_watchers: int = Field(default=1_000, ge=1, le=100_000)
    """How many streams of `WatchSaga` are open at once; more are refused (`TOO_MANY_WATCHERS`). Default 1,000."""

    payload_limit_bytes: int = Field(default=1 << 20, ge=1_024, le=64 << 20)
    """The greatest size, in bytes, of one payload: an input, a request, a response, a participant's descriptors; an
    output is made of those and isn't cut. Default 1,048,576."""

    retention_s: float = Field(default=30 * 86_400.0, ge=0, le=100 * 366 * 86_400.0, allow_inf_nan=False)
    """How long, in seconds, an ended saga is kept whole. Then its payloads, labels and calls are removed, and its row
    stays; 0 keeps everything for ever. Default 2,592,000, which is 30 days."""

    otlp_endpoint: str = Field(
        default="",
        max_length=2_048,
        pattern=r"^(https?://[^\s]+)?$",
        validation_alias=AliasChoices("AMENDS_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT", "otlp_endpoint"),
    )
    """Where metrics and traces are sent, by OTLP over gRPC: `http://host:4317`, or `https` for TLS.
    `OTEL_EXPORTER_OTLP_ENDPOINT` says the same. Default: nowhere."""

    trace_ratio: float = Field(default=1.0, ge=0, le=1)
    """How many of the sagas whose starter sent no trace context are sampled, from 0 to 1: their participants record,
    and they are seen although they committed. A saga that doesn't commit is always seen. Default 1."""

    trace_slow_s: Seconds = 30.0
    """A saga that took longer than this, in seconds, is seen however it was sampled. Default 30."""

    metrics_interval_s: Seconds = 10.0
    """How often, in seconds, metrics are sent and the ledger is asked what stands in it. Default 10."""

    prometheus_port: int = Field(default=0, ge=0, le=65_535)
    """The port of a page with all metrics for Prometheus, on the same host; it needs `amends[prometheus]`. Default 0:
    none."""

    stop_grace_s: Seconds = 10.0
    """How long, in seconds, a stopping coordinator lets calls finish before it hands its sagas over. Default 10."""

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """The least important lines to log: debug (every transition), info (ends, dead letters, node events), warning or
    error. Default info."""

    log_format: Literal["console", "json"] = "console"
    """How log lines look: `console` for people, `json` for machines. Default console."""

    @classmethod
    def load(cls, **overrides: object) -> Settings:
        """The settings from the environment, with `overrides` above them (None: not overridden).

        Raises:
            SettingsError: with a sentence for every fault, also for settings that don't go together.
        """
        given = {name: value for name, value in overrides.items() if value is not None}
        try:
            # pydantic checks the types of these at run time: that is the point of the call.
            settings = cls(**given)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] checked at run time
        except ValidationError as error:
            raise SettingsError(
                [_sentence(fault["loc"], fault["msg"], fault["input"]) for fault in error.errors()]
            ) from None
        settings.check()
        return settings

    def check(self) -> None:
        """Whether the settings go together.

        Raises:
            SettingsError: with a sentence for every pair that doesn't.
        """
        faults: list[str] = []
        if self.heartbeat_interval_s * 3 > self.lease_ttl_s:
            faults.append(
                f"AMENDS_HEARTBEAT_INTERVAL_S is {self.heartbeat_interval_s:g}: it must be at most a third of "
                f"AMENDS_LEASE_TTL_S ({self.lease_ttl_s:g}), so that one lost heartbeat costs nothing."
            )
        if not self.insecure and not is_loopback(self.host):
            faults.append(
                f"AMENDS_HOST is {self.host}: other machines could reach it, and there is no TLS yet; use a loopback "
                "address, or accept that anybody may call it with --insecure (AMENDS_INSECURE=true)."
            )
        if self.prometheus_port and self.prometheus_port == self.port:
            faults.append(
                f"AMENDS_PROMETHEUS_PORT is {self.prometheus_port}, and so is AMENDS_PORT: the page for Prometheus "
                "needs a port of its own."
            )
        if faults:
            raise SettingsError(faults)


def misspelt(environment: Iterable[str]) -> dict[str, str]:
    """The variables that look like one of ours and aren't, with the one that was probably meant. Others are nobody's
    business: Kubernetes makes several for a service that is called amends.
    """
    known = {f"{PREFIX}{name.upper()}" for name in Settings.model_fields}
    odd = (name for name in environment if name.startswith(PREFIX) and name not in known)
    near = {name: difflib.get_close_matches(name, known, n=1, cutoff=ALIKE) for name in odd}
    return {name: found[0] for name, found in near.items() if found}


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach `host`."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _sentence(location: tuple[int | str, ...], message: str, value: object) -> str:
    """One sentence about one wrong setting; never with a value that may hold a password."""
    field = str(location[0]) if location else ""
    said = message[:1].lower() + message[1:]
    if field not in Settings.model_fields:
        return f"{PREFIX}{field.upper()} is no setting of the coordinator: {said}."
    shown = "" if field in _SECRET_FIELDS else f" is {value!r}"
    return f"{PREFIX}{field.upper()}{shown}: {said}."
