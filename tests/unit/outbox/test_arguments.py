"""What `publish` and a relay's options refuse, and how long a refused key waits."""

from __future__ import annotations

import re
import subprocess
import sys
from datetime import timedelta
from typing import Any, cast

import pytest
from google.protobuf.wrappers_pb2 import BytesValue
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Engine, create_engine, create_mock_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from amends.outbox import PAYLOAD_LIMIT_BYTES, MemoryPublisher, OutboxUseError, Relay, RelayOptions, publish
from amends.outbox.options import away_delay_s, delay_s, worth_a_warning

SECOND = timedelta(seconds=1)


def say(session: Session, **changed: Any) -> str:  # Any: arguments of wrong types, too
    """Publish with some arguments changed."""
    usual: dict[str, Any] = {"topic": "orders", "key": "a", "message": b"1", "content_type": "text/plain"}
    return publish(session=session, **{**usual, **changed})


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"topic": ""}, "the event's topic '' can't be"),
        ({"topic": "a" * 256}, "the event's topic"),
        ({"key": "a\nb"}, "the event's key"),
        ({"content_type": None}, "nothing says what they mean"),
        ({"message": bytes(PAYLOAD_LIMIT_BYTES + 1)}, "1,000,001 bytes, 1,000,000 is the most"),
        ({"message": BytesValue(value=bytes(PAYLOAD_LIMIT_BYTES))}, "1,000,000 is the most"),
        ({"headers": {"X-Tenant": "1"}}, "header 'X-Tenant' can't be"),
        ({"headers": {"amends-key": "1"}}, "header 'amends-key' can't be"),
        ({"headers": {"nats-msg-id": "1"}}, "set by others"),
        ({"headers": {"traceparent": "1"}}, "set by others"),
        ({"headers": {"x": "a\r\nb"}}, "no control characters"),
        ({"headers": {"x": "ä" * 16_000}}, "headers have 32,001 bytes, 32,000 is the most"),
    ],
)
def test_what_can_not_be_published(changed: dict[str, Any], told: str) -> None:
    """O4: an event that no broker would take is refused on the line that publishes it, before it holds up its key."""
    with Session(create_engine("sqlite://")) as session, pytest.raises(OutboxUseError) as refusal:
        say(session, **changed)
    assert told in str(refusal.value)


def test_what_can_just_be_published() -> None:
    """O4: the limits themselves are fine."""
    with Session(create_engine("sqlite://")) as session:
        assert say(session, topic="a" * 255, key="ä" * 255, message=bytes(PAYLOAD_LIMIT_BYTES)) != say(session)


def test_a_scoped_session_is_asked_for_the_real_one() -> None:
    """O1: what isn't a session has no transaction to publish in."""
    scoped = scoped_session(sessionmaker(create_engine("sqlite://")))
    with pytest.raises(OutboxUseError, match=re.escape("scoped()")):
        say(cast("Session", scoped))
    assert say(scoped())
    scoped.remove()


def test_other_databases_are_refused() -> None:
    """O1: where the outbox's promises were never tried it says so, when publishing and when relaying."""
    other = create_mock_engine("oracle://", print)
    sessions = sessionmaker(cast("Engine", other))  # only its dialect is asked for
    with sessions() as session, pytest.raises(OutboxUseError, match="can't be in a database of the kind 'oracle'"):
        say(session)
    with pytest.raises(OutboxUseError, match="only in PostgreSQL or SQLite"):
        Relay(sessions, MemoryPublisher())


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"batch_size": 0}, "batch_size is 0: it must be more than nothing"),
        ({"poll_interval": timedelta(0)}, "poll_interval is 0:00:00"),
        ({"lease": SECOND, "publish_timeout": SECOND}, "must be longer than what one event may take"),
        ({"initial_delay": SECOND * 2, "maximum_delay": SECOND}, "is longer than maximum_delay"),
    ],
)
def test_silly_options_are_refused(options: dict[str, Any], told: str) -> None:  # Any: as above
    """O4: limits that would stop a relay are refused where they are written."""
    with pytest.raises(OutboxUseError, match=told):
        RelayOptions(**options)


@given(st.integers(1, 10**9), st.floats(0, 1))
def test_delays_stay_within_their_cap(refusal_count: int, fraction: float) -> None:
    """O4: a refused key waits for half of its delay at least, for the cap at most, after any number of refusals."""
    options = RelayOptions(initial_delay=timedelta(milliseconds=100), maximum_delay=timedelta(seconds=60))
    full = 0.1 * 2 ** min(refusal_count - 1, 20)
    assert min(full, 60) / 2 <= delay_s(options, refusal_count, fraction) <= min(full, 60)


def test_what_is_away_is_tried_again_soon_and_told_ever_less_often() -> None:
    """O4: a broker or database that comes back is noticed within seconds; a long outage doesn't fill the log."""
    options = RelayOptions(initial_delay=timedelta(milliseconds=100), maximum_delay=timedelta(hours=1))
    assert [away_delay_s(options, count, 1.0) for count in (1, 2, 6, 7, 1000)] == [0.1, 0.2, 3.2, 5.0, 5.0]
    assert [count for count in range(1, 100) if worth_a_warning(count)] == [1, 2, 4, 8, 16, 32, 64]


async def test_a_relay_is_used_once() -> None:
    """O3: one relay is one run: a second one is an error, not two relays under one name."""
    sessions = sessionmaker(create_engine("sqlite://"))
    relay = Relay(sessions, MemoryPublisher())
    relay.stop()
    await relay.run()
    with pytest.raises(OutboxUseError, match="make another"):
        await relay.run()


@pytest.mark.parametrize(("missing", "module"), [("sqlalchemy", "amends.outbox"), ("nats", "amends.outbox.nats")])
def test_without_the_extra_a_sentence_says_so(missing: str, module: str) -> None:
    """Plain amends does without SQLAlchemy and NATS; who needs them is told what to install."""
    code = f"import sys; sys.modules[{missing!r}] = None; import {module}"
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert "pip install 'amends[" in done.stderr
