"""`publish`: an event that becomes true together with the work that it tells of, or not at all."""

from __future__ import annotations

import re
import uuid
from datetime import UTC, datetime
from typing import TYPE_CHECKING, overload

from google.protobuf.message import Message
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from amends.barrier import BarrierUseError, before_commit
from amends.barrier.transaction import AsyncTransaction, SyncTransaction
from amends.outbox import writing
from amends.outbox.errors import OutboxUseError
from amends.participant.context import current_step
from amends.participant.refusals import NotInStep

if TYPE_CHECKING:
    from collections.abc import Mapping

    from amends.participant.context import StepContext

PAYLOAD_LIMIT_BYTES = 1_000_000
"""An event's largest payload. Common brokers take a mebibyte, headers included, unless they are told otherwise."""

HEADERS_LIMIT_BYTES = 32_000
"""The most that names and values of an event's own headers have together: with them, too, a broker takes it."""

NAME_LIMIT = 255
"""The most characters of a topic and of a key."""

PROTOBUF = "application/protobuf"

_HEADER_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_propagator = TraceContextTextMapPropagator()


@overload
def publish(
    topic: str,
    key: str,
    message: Message,
    *,
    headers: Mapping[str, str] | None = None,
    session: Session | AsyncSession | None = None,
) -> str: ...


@overload
def publish(
    topic: str,
    key: str,
    message: bytes,
    *,
    content_type: str,
    headers: Mapping[str, str] | None = None,
    session: Session | AsyncSession | None = None,
) -> str: ...


def publish(
    topic: str,
    key: str,
    message: Message | bytes,
    *,
    content_type: str | None = None,
    headers: Mapping[str, str] | None = None,
    session: Session | AsyncSession | None = None,
) -> str:
    """Publish an event together with the work of the current transaction: both, or neither.

    Nothing is sent and nothing is written yet: the event is written just before the transaction commits, and a `Relay`
    delivers it afterwards. What is rolled back, a savepoint too, was never published.

    Args:
        topic: where to; 1 to 255 characters. For NATS the subject.
        key: what it is about, such as an order's id; 1 to 255 characters. Events of one key are delivered in the order
            of their commits, whatever their topics; one that the broker doesn't take holds back the later ones of its
            key, and no others.
        message: what to say: a protobuf message, or bytes with a `content_type`; at most `PAYLOAD_LIMIT_BYTES`.
        content_type: of bytes, for example "application/json".
        headers: more to send with it, at most `HEADERS_LIMIT_BYTES` in all; names of `a-z 0-9 . _ -`, values without
            control characters. Names that begin with "amends-" or "nats-", and "traceparent", "tracestate" and
            "content-type", are set by others.
        session: the session whose transaction it belongs to, for work that is no step of a saga. In a handler it is
            left out: there it is the session of the `barrier.transaction` block, or the one in which a
            `barrier.effect` is written down as done.

    Returns:
        The event's id.

    Raises:
        OutboxUseError: there is no transaction to publish in, or an argument can't be; the text says which.
    """
    values = _described(topic, key, message, content_type) | {"headers": _headers(headers)}
    step = _step()
    values |= {
        "event_id": str(uuid.uuid4()),
        "saga_id": step.saga_id if step is not None else None,
        "step": step.step if step is not None else None,
        "create_time": datetime.now(UTC),
    }
    _add(values, session, step)
    return str(values["event_id"])


def _described(topic: str, key: str, message: Message | bytes, content_type: str | None) -> writing.Row:
    for what, text in (("topic", topic), ("key", key)):
        if not 0 < len(text) <= NAME_LIMIT or _CONTROL.search(text):
            raise OutboxUseError(
                f"the event's {what} {text[:NAME_LIMIT]!r} can't be: it is 1 to {NAME_LIMIT} characters, "
                "none of them a control character"
            )
    if isinstance(message, Message):
        payload, type_name = message.SerializeToString(deterministic=True), str(message.DESCRIPTOR.full_name)
        content_type = PROTOBUF
    else:
        payload, type_name = bytes(message), ""
    if content_type is None or not content_type.isprintable() or not content_type:
        raise OutboxUseError(
            f"the event for topic {topic!r} is bytes, and nothing says what they mean: "
            'give a content_type, for example "application/json"'
        )
    if len(payload) > PAYLOAD_LIMIT_BYTES:
        raise OutboxUseError(
            f"the event for topic {topic!r} has {len(payload):,} bytes, {PAYLOAD_LIMIT_BYTES:,} is the most: "
            "store what is large elsewhere and publish where it is"
        )
    return {"topic": topic, "key": key, "payload": payload, "type_name": type_name, "content_type": content_type}


def _headers(given: Mapping[str, str] | None) -> dict[str, str]:
    headers: dict[str, str] = {}
    _propagator.inject(headers)
    for name, value in (given or {}).items():
        reserved = name.startswith(("amends-", "nats-")) or name in {"traceparent", "tracestate", "content-type"}
        if reserved or not _HEADER_NAME.fullmatch(name) or _CONTROL.search(value):
            raise OutboxUseError(
                f"the event's header {name!r} can't be: a name is of a-z 0-9 . _ - and not one that is set by others "
                "(amends-…, nats-…, traceparent, tracestate, content-type), a value has no control characters"
            )
        headers[name] = value
    if (size := sum(len(name) + len(value.encode()) for name, value in headers.items())) > HEADERS_LIMIT_BYTES:
        raise OutboxUseError(
            f"the event's headers have {size:,} bytes, {HEADERS_LIMIT_BYTES:,} is the most: what is large belongs into "
            "the message"
        )
    return headers


def _step() -> StepContext | None:
    try:
        return current_step()
    except NotInStep:
        return None


def _add(row: writing.Row, session: Session | AsyncSession | None, step: StepContext | None) -> None:
    """Have a row written with the transaction that it belongs to."""
    if session is not None:
        writing.add(_plain(session), row)
        return
    guard = step.state.guard if step is not None else None
    if isinstance(guard, AsyncTransaction | SyncTransaction):
        writing.add(guard.plain_session, row)
        return
    try:
        # What is done outside of the database has no session before it is done.
        before_commit(lambda done: writing.add(done, row))
    except BarrierUseError:
        raise OutboxUseError(
            "there is no transaction to publish in: call outbox.publish inside a handler's barrier.transaction or "
            "barrier.effect block, or, where the work is no step of a saga, give it the session that does the work: "
            "session=..."
        ) from None


def _plain(session: object) -> Session:
    if isinstance(session, AsyncSession):
        return session.sync_session
    if isinstance(session, Session):
        return session
    raise OutboxUseError(
        f"outbox.publish was given a {type(session).__name__} as its session: give it the Session or "
        "AsyncSession itself (of a scoped session: scoped())"
    )
