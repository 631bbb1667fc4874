"""What the coordinator claims of a saga, in the words that the audit compares."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from amends.v1.saga_pb2 import Direction, Intent, Saga
from shop.orders.v1.orders_pb2 import OrderPlaced

if TYPE_CHECKING:
    from collections.abc import Mapping

COMMITTED = "COMMITTED"
COMPENSATED = "COMPENSATED"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedCall:
    """A row of the ledger: a call that was announced, and what the coordinator says became of it."""

    step: str
    direction: str
    key: str
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """How a saga ended, according to the coordinator.

    Attributes:
        state: name of the saga's state, for example `COMMITTED`.
        calls: its intents, oldest first.
        attention_required: whether something about it waits for a person.
        output: ids by the kind of thing they belong to; empty unless it committed.
    """

    saga_id: str
    state: str
    calls: tuple[ClaimedCall, ...]
    attention_required: bool = False
    output: Mapping[str, str] = field(default_factory=dict[str, str])


def claim_of(saga: Saga) -> Claim:
    """Reads the claim out of the coordinator's answer."""
    return Claim(
        saga_id=saga.saga_id,
        state=state_name(saga),
        calls=tuple(_call(intent) for intent in saga.intents),
        attention_required=saga.attention_required,
        output=_output(saga),
    )


def state_name(saga: Saga) -> str:
    """The saga's state without the prefix that enums of protobuf carry."""
    return Saga.State.Name(saga.state).removeprefix("STATE_")


def _call(intent: Intent) -> ClaimedCall:
    return ClaimedCall(
        step=intent.step,
        direction=Direction.Name(intent.direction).removeprefix("DIRECTION_").lower(),
        key=intent.idempotency_key,
        state=Intent.State.Name(intent.state).removeprefix("STATE_"),
    )


def _output(saga: Saga) -> dict[str, str]:
    placed = OrderPlaced()
    if not saga.HasField("output") or not saga.output.Unpack(placed):
        return {}
    return {"order": placed.order_id, "shipment": placed.shipment_id, "charge": placed.charge_id}
