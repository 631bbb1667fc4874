"""Checks of what a request says by itself, before anything is looked up: every fault with its path, all at once."""

from __future__ import annotations

import base64
import binascii
import re
from typing import TYPE_CHECKING

from amends_coordinator.core.ids import DeadLetterId, DefinitionVersion, Instant, SagaId
from amends_coordinator.definitions.errors import Fault, quote

if TYPE_CHECKING:
    from collections.abc import Mapping

    from google.protobuf.any_pb2 import Any as AnyMessage
    from google.protobuf.duration_pb2 import Duration
    from google.protobuf.timestamp_pb2 import Timestamp

SAGA_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._~-]{0,127}")
NAME = re.compile(r"[a-z][a-z0-9_-]{0,63}")
VERSION = re.compile(r"[0-9a-f]{16}")
LABEL_KEY = re.compile(r"[a-z][a-z0-9_.-]{0,62}")
FULL_NAME = re.compile(r"(?=.{1,255}\Z)[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")
ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9]([A-Za-z0-9._-]{0,252}[A-Za-z0-9])?):([0-9]{1,5})")

LABEL_COUNT_LIMIT = 16
LABEL_VALUE_LIMIT = 256
SERVICE_COUNT_LIMIT = 64
CAPACITY_LIMIT = 1_000_000
LETTER_ID_LIMIT = 256
REASON_LIMIT_BYTES = 512
CLAIM_LIMIT_BYTES = 128
PAGE_SIZE_DEFAULT = 100
PAGE_SIZE_LIMIT = 1_000
WAIT_DEFAULT_S = 60.0
NANOS_PER_SECOND = 1_000_000_000
FIRST_SECOND = -62_135_596_800
"""The year 1 begins; a Timestamp goes no farther back."""
LAST_SECOND = 253_402_300_798
"""A second before the year 9999 ends."""
STALLED_LIMIT_S = 10 * 366 * 86_400


class InvalidRequestError(Exception):
    """Fields of a request are malformed; all of them are here. Nothing was looked up or stored: correct them."""

    def __init__(self, faults: tuple[Fault, ...]) -> None:
        super().__init__("; ".join(f"{fault.path}: {fault.description}" for fault in faults))
        self.faults = faults


class Checks:
    """Collects the faults of one request. Every check answers what it could make of the field, good or not."""

    def __init__(self) -> None:
        self._faults: list[Fault] = []

    def fault(self, path: str, description: str) -> None:
        """Note that something is wrong at this path."""
        self._faults.append(Fault(path, description))

    def raise_if_any(self) -> None:
        """End the checks.

        Raises:
            InvalidRequestError: something was noted.
        """
        if self._faults:
            raise InvalidRequestError(tuple(self._faults))

    def text(self, path: str, value: str, pattern: re.Pattern[str], *, example: str) -> str:
        """A required text of a given form."""
        if not value:
            self.fault(path, f"is required, for example {example!r}")
        elif not pattern.fullmatch(value):
            self.fault(path, f"{quote(value)} is not of the form {pattern.pattern}, for example {example!r}")
        return value

    def saga_id(self, path: str, value: str) -> SagaId:
        """A required saga id."""
        return SagaId(self.text(path, value, SAGA_ID, example="order-1042"))

    def letter_id(self, path: str, value: str) -> DeadLetterId:
        """A required id of a dead letter, whatever it looks like: they are taken from lists."""
        if not value:
            self.fault(path, "is required, for example 'order-1042/authorize/compensation/1'")
        elif len(value) > LETTER_ID_LIMIT:
            self.fault(path, f"has {len(value)} characters; ids of dead letters have at most {LETTER_ID_LIMIT}")
        return DeadLetterId(value)

    def words(self, path: str, value: str, *, limit_bytes: int) -> str:
        """A text in somebody's own words, which may be left out."""
        size = len(value.encode())
        if size > limit_bytes:
            self.fault(path, f"has {size} bytes; at most {limit_bytes}")
        return value

    def required_words(self, path: str, value: str, *, limit_bytes: int) -> str:
        """A text in somebody's own words."""
        if not value.strip():
            self.fault(path, "is required: say it in a few words, it is kept in the audit")
        return self.words(path, value, limit_bytes=limit_bytes)

    def labels(self, path: str, labels: Mapping[str, str]) -> dict[str, str]:
        """Labels: how many, their keys, the length of their values."""
        if not labels:
            return {}
        if len(labels) > LABEL_COUNT_LIMIT:
            self.fault(path, f"has {len(labels)} labels; at most {LABEL_COUNT_LIMIT} are kept with a saga")
        for key, value in sorted(labels.items())[: LABEL_COUNT_LIMIT + 1]:
            where = f"{path}[{quote(key)}]"
            if not LABEL_KEY.fullmatch(key):
                self.fault(where, f"the key is not of the form {LABEL_KEY.pattern}")
            if len(value) > LABEL_VALUE_LIMIT:
                self.fault(where, f"the value has {len(value)} characters; at most {LABEL_VALUE_LIMIT}")
            if "\0" in value:
                self.fault(where, "the value has a NUL character; leave it out")
        return dict(labels)

    def payload(self, path: str, payload: AnyMessage, *, limit_bytes: int) -> AnyMessage:
        """A required payload: its type has a name and it isn't too big."""
        if not payload.type_url:
            self.fault(path, "is required: an Any of the definition's input type")
        elif not FULL_NAME.fullmatch(type_name(payload)):
            self.fault(
                f"{path}.type_url", f"{quote(payload.type_url)} names no message type; write type.googleapis.com/…"
            )
        self.size(path, len(payload.value), limit_bytes=limit_bytes)
        return payload

    def size(self, path: str, size: int, *, limit_bytes: int) -> None:
        """A payload's size."""
        if size > limit_bytes:
            self.fault(path, f"has {size} bytes; at most {limit_bytes} are accepted (AMENDS_PAYLOAD_LIMIT_BYTES)")

    def page_size(self, path: str, size: int) -> int:
        """The size of a page; 0 means the default."""
        if not 0 <= size <= PAGE_SIZE_LIMIT:
            self.fault(path, f"is {size}; it is from 1 to {PAGE_SIZE_LIMIT}, or 0 for {PAGE_SIZE_DEFAULT}")
        return size or PAGE_SIZE_DEFAULT

    def count(self, path: str, number: int) -> int:
        """A number of things: 0 or more."""
        if number < 0:
            self.fault(path, f"is {number}; it is 0 or more")
        return number

    def wait_seconds(self, path: str, timeout: Duration | None) -> float:
        """A waiting time in seconds, from 0 to 60; None means 60."""
        if timeout is None:
            return WAIT_DEFAULT_S
        whole, nanos = timeout.seconds, timeout.nanos
        seconds = whole + nanos / NANOS_PER_SECOND
        if abs(nanos) >= NANOS_PER_SECOND or whole * nanos < 0:
            self.fault(path, "is no duration: nanos are below a second and have the sign of the seconds")
        elif not 0 <= seconds <= WAIT_DEFAULT_S:
            self.fault(path, f"is {seconds:g} s; it is from 0 to {WAIT_DEFAULT_S:g} s: ask again to wait for longer")
        return seconds

    def address(self, path: str, address: str) -> str:
        """Where an instance is reached: HOST:PORT, so that no announcement makes us open anything but a connection."""
        if not address:
            self.fault(path, "is required, for example '10.0.0.7:7101'")
            return address
        found = ADDRESS.fullmatch(address)
        if not found or not 1 <= int(found[3]) <= 65_535:
            self.fault(path, f"{quote(address)} is not HOST:PORT, for example '10.0.0.7:7101'")
        return address

    def services(self, path: str, services: tuple[str, ...]) -> tuple[str, ...]:
        """Required full names of services."""
        if not services:
            self.fault(path, "is required: the full names of the services, for example 'shop.payments.v1.Payments'")
        if len(services) > SERVICE_COUNT_LIMIT:
            self.fault(path, f"has {len(services)} services; at most {SERVICE_COUNT_LIMIT}")
        for index, service in enumerate(services[:SERVICE_COUNT_LIMIT]):
            self.text(f"{path}[{index}]", service, FULL_NAME, example="shop.payments.v1.Payments")
        return services

    def capacity(self, path: str, capacity: int) -> int:
        """How many calls an instance takes at once; 0 means that it doesn't say."""
        if not 0 <= capacity <= CAPACITY_LIMIT:
            self.fault(path, f"is {capacity}; it is from 0 to {CAPACITY_LIMIT}")
        return capacity

    def instant(self, path: str, stamp: Timestamp) -> Instant:
        """A moment, to the microsecond; what a clock can't show is none."""
        if not FIRST_SECOND <= stamp.seconds <= LAST_SECOND or not 0 <= stamp.nanos < NANOS_PER_SECOND:
            self.fault(path, "is no time: it lies in the years 1 to 9999, and nanos are from 0 to 999,999,999")
            return Instant(0)
        return Instant(stamp.seconds * 1_000_000 + stamp.nanos // 1_000)

    def stalled_us(self, path: str, span: Duration) -> int:
        """How long a saga may have stood still, in microseconds."""
        if abs(span.nanos) >= NANOS_PER_SECOND or span.seconds * span.nanos < 0:
            self.fault(path, "is no duration: nanos are below a second and have the sign of the seconds")
        elif not (0, 0) <= (span.seconds, span.nanos) <= (STALLED_LIMIT_S, 0):
            self.fault(path, f"is {span.seconds} s; it is from 0 to {STALLED_LIMIT_S} s (ten years)")
        else:
            return span.seconds * 1_000_000 + span.nanos // 1_000
        return 0

    def saga_page_token(self, path: str, token: str, fingerprint: str) -> tuple[Instant, SagaId] | None:
        """Where a page of sagas begins, of a list with these filters; None: at the first one."""
        if not token:
            return None
        instant, _, rest = _decoded(token).partition("/")
        saga_id, _, of_filters = rest.partition("/")
        if not _is_instant(instant) or not SAGA_ID.fullmatch(saga_id):
            self.fault(path, "is no token that this list has answered; leave it empty for the first page")
            return None
        if of_filters != fingerprint:
            self.fault(path, "belongs to a list with other filters; send those, or leave it empty for the first page")
        return Instant(int(instant)), SagaId(saga_id)

    def text_page_token(self, path: str, token: str) -> tuple[Instant, str] | None:
        """Where a page of what has an instant and an id begins; None: at the first one."""
        if not token:
            return None
        instant, _, text = _decoded(token).partition("/")
        if not _is_instant(instant) or not text or "\0" in text:
            self.fault(path, "is no token that this list has answered; leave it empty for the first page")
            return None
        return Instant(int(instant)), text

    def definition_page_token(self, path: str, token: str) -> tuple[Instant, str, DefinitionVersion] | None:
        """Where a page of definitions begins; None: at the first one."""
        if not token:
            return None
        instant, _, rest = _decoded(token).partition("/")
        name, _, version = rest.partition("/")
        if not (_is_instant(instant) and NAME.fullmatch(name) and VERSION.fullmatch(version)):
            self.fault(path, "is no token that this list has answered; leave it empty for the first page")
            return None
        return Instant(int(instant)), name, DefinitionVersion(version)

    def name_page_token(self, path: str, token: str) -> str:
        """The name after which a page begins; "": at the first one."""
        name = _decoded(token)
        if token and not NAME.fullmatch(name):
            self.fault(path, "is no token that this list has answered; leave it empty for the first page")
        return name


def type_name(payload: AnyMessage) -> str:
    """The full name of a payload's message type: what stands behind the last slash of its URL."""
    return payload.type_url.rpartition("/")[2]


def saga_page_token(position: tuple[Instant, SagaId] | None, fingerprint: str) -> str:
    """The opaque token of a place in a list of sagas with these filters; "" where there is no further page."""
    return "" if position is None else encoded_token(f"{position[0]}/{position[1]}/{fingerprint}")


def text_page_token(position: tuple[Instant, str] | None) -> str:
    """The opaque token of a place in a list of what has an instant and an id; "" where there is no further page."""
    return "" if position is None else encoded_token(f"{position[0]}/{position[1]}")


def definition_page_token(position: tuple[Instant, str, DefinitionVersion] | None) -> str:
    """The opaque token of a place in a list of definitions; "" where there is no further page."""
    return "" if position is None else encoded_token("/".join(map(str, position)))


def encoded_token(text: str) -> str:
    """A text as an opaque token: clients hand it back, they don't read it."""
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _is_instant(text: str) -> bool:
    """Whether a token's instant is one that a list may have answered."""
    return re.fullmatch(r"[0-9]{1,18}", text) is not None and int(text) < (LAST_SECOND + 1) * 1_000_000


def _decoded(token: str) -> str:
    """A token's text; "" if it is none."""
    try:
        return base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True).decode("ascii")
    except (binascii.Error, ValueError):
        return ""
