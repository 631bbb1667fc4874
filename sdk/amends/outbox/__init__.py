"""Events that a participant publishes with its work: written in the same transaction, delivered afterwards.

Needs SQLAlchemy: `pip install "amends[barrier]"`. `amends.outbox.nats` publishes to NATS JetStream.
"""

from __future__ import annotations

from importlib import import_module

try:
    import_module("sqlalchemy.ext.asyncio")  # since 2.1 it needs greenlet, which the coordinator's extra does not bring
except ImportError as error:
    raise ModuleNotFoundError(
        "amends.outbox needs SQLAlchemy with its asyncio part, which an extra brings: pip install 'amends[barrier]'",
        name="sqlalchemy",
    ) from error

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
