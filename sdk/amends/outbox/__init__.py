"""Events that a participant publishes with its work: written in the same transaction, delivered afterwards.

Needs SQLAlchemy: `pip install "amends[barrier]"`. `amends.outbox.nats` publishes to NATS JetStream.
"""

from __future__ import annotations

from importlib.util import find_spec

if find_spec("sqlalchemy") is None:
    raise ModuleNotFoundError(
        "amends.outbox needs SQLAlchemy, which plain amends does not bring: pip install 'amends[barrier]'",
        name="sqlalchemy",
    )

from amends.outbox.errors import OutboxUseError, PublishError, PublisherUnavailableError
from amends.outbox.event import Event
from amends.outbox.memory import MemoryPublisher
from amends.outbox.options import RelayOptions
from amends.outbox.publisher import Publisher
from amends.outbox.publishing import PAYLOAD_LIMIT_BYTES, publish
from amends.outbox.relay import Relay
from amends.outbox.tables import TABLES

__all__ = [
    "PAYLOAD_LIMIT_BYTES",
    "TABLES",
    "Event",
    "MemoryPublisher",
    "OutboxUseError",
    "PublishError",
    "Publisher",
    "PublisherUnavailableError",
    "Relay",
    "RelayOptions",
    "publish",
]
