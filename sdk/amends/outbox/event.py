"""What is published: one event, as it is written with the work and as a publisher gets it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened in a participant.

    Attributes:
        event_id: a UUID, the same with every delivery of this event: whoever has seen it skips it.
        topic: where it is published; what that is, is the publisher's business (for NATS the subject).
        key: what it is about. Events of one key arrive in the order in which their transactions were committed.
        payload: the message's bytes.
        content_type: of the payload: `application/protobuf` for a protobuf message.
        type_name: the full name of the protobuf message; "" for bytes.
        headers: names in lower case and values, `traceparent` among them where there is a trace.
        saga_id: the saga whose step published it. None: it was no step.
        step: that step's name, or None.
        create_time: when it was published, by the participant's clock, in UTC.
    """

    event_id: str
    topic: str
    key: str
    payload: bytes
    content_type: str
    type_name: str = ""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    saga_id: str | None = None
    step: str | None = None
    create_time: datetime
