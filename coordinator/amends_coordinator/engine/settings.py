"""The engine's own settings; `amends_coordinator.settings` fills them from the environment."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """Spans in seconds, sizes in bytes.

    sweep_interval_s: how often the sweeper looks for sagas that need work.
    heartbeat_interval_s: how often the node writes its sign of life.
    lease_ttl_s: how long a node without a sign of life keeps its sagas.
    max_running_sagas: how many sagas are held in memory, at most half of them for one participant; more wait in the
        ledger.
    payload_limit_bytes: the largest request that is sent.
    abort_grace_s: how long calls in flight may go on when their saga begins to roll back.
    max_watchers: how many may watch a saga at once.
    idle_unload_s: a saga that waits longer than this leaves memory and comes back by its due time.
    retention_s: how long an ended saga is kept whole; 0: for ever.
    trace_ratio: how many of the sagas whose starter has no trace are sampled, from 0 to 1. None: no spans are made of
        sagas, and participants get the starter's own trace context.
    """

    sweep_interval_s: float = 1.0
    heartbeat_interval_s: float = 2.0
    lease_ttl_s: float = 10.0
    max_running_sagas: int = 10_000
    payload_limit_bytes: int = 1_048_576
    abort_grace_s: float = 5.0
    max_watchers: int = 1_000
    idle_unload_s: float = 5.0
    retention_s: float = 30 * 86_400.0
    trace_ratio: float | None = None
    abort_grace_us: int = field(init=False)
    """`abort_grace_s` in microseconds: every event carries it."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "abort_grace_us", int(self.abort_grace_s * 1e6))
