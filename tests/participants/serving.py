"""Serves one reference service over real gRPC in the test's own process, and calls it the way a coordinator does."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import grpc

from amends import key_uuid
from hosting.holds import ReplyHold
from hosting.serving import Place, Service, hosted
from shop.process import SERVICES

# Nothing listens there; a participant serves all the same while it looks for its coordinator.
NO_COORDINATOR = "127.0.0.1:1"


@asynccontextmanager
async def serving(
    name: str, data: Path, *, holds: Sequence[ReplyHold] = (), service: Service | None = None
) -> AsyncGenerator[grpc.aio.Channel]:
    """A channel to the service of the shop of this name, or to another one; it keeps its database in `data`."""
    place = Place(coordinator=NO_COORDINATOR, port=0, data=data, holds=holds)
    async with (
        hosted(name, service or SERVICES[name], place) as server,
        server,
        grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel,
    ):
        yield channel


def as_step(
    step: str,
    *,
    saga_id: str = "saga-1",
    direction: str = "action",
    attempt: int = 1,
    kind: str = "compensatable",
    target: str = "same",
    ledger: str = "default",
) -> tuple[tuple[str, str], ...]:
    """The metadata that a coordinator sends with a call."""
    key, action_key = f"{saga_id}/{step}/{direction}", f"{saga_id}/{step}/action"
    metadata = {
        "idempotency-key": key,
        "amends-key-uuid": str(key_uuid(ledger, key)),
        "amends-ledger": ledger,
        "amends-saga-id": saga_id,
        "amends-step": step,
        "amends-kind": kind,
        "amends-direction": direction.upper(),
        "amends-attempt": str(attempt),
    }
    if direction != "action":
        metadata["amends-action-key"] = action_key
        metadata["amends-action-key-uuid"] = str(key_uuid(ledger, action_key))
    if direction == "compensation":
        metadata["amends-action-target"] = target
    return tuple(metadata.items())
