"""What a request may say: every limit from both sides, and every fault with its path, all at once."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from hypothesis import given
from hypothesis import strategies as st

from amends_coordinator.core.ids import Instant, SagaId
from amends_coordinator.grpc_api.validation import (
    NAME,
    SAGA_ID,
    Checks,
    InvalidRequestError,
    encoded_token,
    saga_page_token,
)

if TYPE_CHECKING:
    from collections.abc import Callable


def paths(check: Callable[[Checks], object]) -> list[str]:
    """The paths of the faults that a check finds."""
    checks = Checks()
    check(checks)
    try:
        checks.raise_if_any()
    except InvalidRequestError as error:
        return [fault.path for fault in error.faults]
    return []


def check_payload(payload: AnyMessage, checks: Checks) -> None:
    """A payload of at most 4 bytes."""
    checks.payload("input", payload, limit_bytes=4)


def check_page_size(size: int, checks: Checks) -> None:
    """The size of a page."""
    checks.page_size("page_size", size)


@pytest.mark.parametrize("good", ["a", "A9", "order-1042", "a.b_c~d", "0" * 128])
def test_good_saga_ids(good: str) -> None:
    """Ids are always legal metadata (section 3)."""
    assert not paths(lambda checks: checks.saga_id("saga_id", good))


@pytest.mark.parametrize("bad", ["", "a b", "-a", "a/b", "a\n", "\0", "ä", "0" * 129])
def test_bad_saga_ids(bad: str) -> None:
    """A slash, a space or a line's end would make two keys collide, or break a call's metadata."""
    assert paths(lambda checks: checks.saga_id("saga_id", bad)) == ["saga_id"]


def test_all_faults_at_once() -> None:
    """Whoever corrects a request hears of everything at once."""

    def several(checks: Checks) -> None:
        checks.saga_id("saga_id", "a b")
        checks.text("definition_name", "Order", NAME, example="order")
        checks.labels("labels", {"Big": "x", "ok": "y" * 257, "nul": "\0"})
        checks.payload("input", AnyMessage(), limit_bytes=10)

    assert paths(several) == [
        "saga_id",
        "definition_name",
        "labels['Big']",
        "labels['nul']",
        "labels['ok']",
        "input",
    ]


def test_labels_are_limited() -> None:
    """At most 16 labels, with keys and values of a limited length."""
    assert not paths(lambda checks: checks.labels("labels", {f"k{i}": "v" * 256 for i in range(16)}))
    assert paths(lambda checks: checks.labels("labels", {f"k{i}": "v" for i in range(17)})) == ["labels"]
    assert paths(lambda checks: checks.labels("labels", {"k" * 64: "v"})) == [f"labels['{'k' * 64}']"]


def test_payloads_are_typed_and_limited() -> None:
    """A payload has a type and at most as many bytes as the setting says."""
    url = "type.googleapis.com/a.v1.B"
    assert not paths(lambda checks: checks.payload("input", AnyMessage(type_url=url, value=b"1234"), limit_bytes=4))
    assert paths(lambda checks: checks.payload("input", AnyMessage(type_url=url, value=b"12345"), limit_bytes=4))
    for bad in ("/", "type.googleapis.com/", "type.googleapis.com/a b", "x/.a", "a."):
        assert paths(partial(check_payload, AnyMessage(type_url=bad))) == ["input.type_url"]


def test_page_sizes() -> None:
    """Default 100, at most 1,000; odd ones are refused, not bent."""
    assert Checks().page_size("page_size", 0) == 100
    assert Checks().page_size("page_size", 1000) == 1000
    for bad in (-1, 1001, 2**31 - 1):
        assert paths(partial(check_page_size, bad)) == ["page_size"]


@pytest.mark.parametrize(
    "odd",
    [
        Duration(seconds=61),
        Duration(seconds=60, nanos=1),
        Duration(seconds=-1),
        Duration(nanos=-1),
        Duration(nanos=1_000_000_000),
        Duration(seconds=1, nanos=-1),
        Duration(seconds=2**62),
    ],
)
def test_odd_timeouts(odd: Duration) -> None:
    """An odd timeout is refused with its path, not bent."""
    assert paths(lambda checks: checks.wait_seconds("wait_timeout", odd)) == ["wait_timeout"]


def test_good_timeouts() -> None:
    """Unset is 60 s, and zero asks without waiting."""
    assert Checks().wait_seconds("wait_timeout", None) == 60
    assert Checks().wait_seconds("wait_timeout", Duration()) == 0
    assert Checks().wait_seconds("wait_timeout", Duration(seconds=1, nanos=500_000_000)) == 1.5


@pytest.mark.parametrize("good", ["10.0.0.7:7101", "localhost:1", "[::1]:65535", "payments.shop.svc:80"])
def test_good_addresses(good: str) -> None:
    """A participant is reached at HOST:PORT."""
    assert not paths(lambda checks: checks.address("instance.address", good))


@pytest.mark.parametrize("bad", ["", "unix:/tmp/x", "dns:///a:1", "a", "a:0", "a:65536", "a b:1", "a:1\n", "::1:80"])
def test_bad_addresses(bad: str) -> None:
    """Nothing but HOST:PORT: an announcement must not make the coordinator open a file or ask a name service."""
    assert paths(lambda checks: checks.address("instance.address", bad)) == ["instance.address"]


def test_services_are_full_names() -> None:
    """Each wrong service is named by its place."""
    assert not paths(lambda checks: checks.services("services", ("a.v1.B", "C")))
    assert paths(lambda checks: checks.services("services", ())) == ["services"]
    assert paths(lambda checks: checks.services("services", ("a.v1.B", "a/b", ""))) == ["services[1]", "services[2]"]


@given(st.integers(0, 10**17), st.from_regex(SAGA_ID, fullmatch=True))
def test_saga_tokens_come_back(instant: int, saga_id: str) -> None:
    """A page begins where the page before ended, whatever the saga's id."""
    place = (Instant(instant), SagaId(saga_id))
    checks = Checks()
    assert checks.saga_page_token("page_token", saga_page_token(place, "0123"), "0123") == place
    checks.raise_if_any()


@given(st.text())
def test_any_token_ends_in_a_fault_or_a_place(token: str) -> None:
    """Whatever a client sends as a token: a place, or INVALID_ARGUMENT, never a traceback."""
    checks = Checks()
    checks.name_page_token("page_token", token)
    checks.saga_page_token("page_token", token, "0123")


def test_tokens_of_another_list_are_refused() -> None:
    """A token of one list is none of another."""
    assert paths(lambda checks: checks.saga_page_token("page_token", encoded_token("payments"), "")) == ["page_token"]
    assert paths(lambda checks: checks.name_page_token("page_token", encoded_token("12/a"))) == ["page_token"]
    assert Checks().name_page_token("page_token", encoded_token("payments")) == "payments"


@pytest.mark.parametrize("instant", ["253402300799000000", "999999999999999999"])
def test_tokens_of_no_time_that_databases_know_are_refused(instant: str) -> None:
    """A forged token is the client's fault: asking a database would look like an outage, and be tried again."""
    version = "0" * 16
    assert paths(lambda checks: checks.saga_page_token("t", encoded_token(f"{instant}/s/f"), "f")) == ["t"]
    assert paths(lambda checks: checks.text_page_token("t", encoded_token(f"{instant}/s"))) == ["t"]
    assert paths(lambda checks: checks.definition_page_token("t", encoded_token(f"{instant}/a/{version}"))) == ["t"]
    assert paths(lambda checks: checks.text_page_token("t", encoded_token("1/a\0b"))) == ["t"]
