"""What an answer proves: every gRPC status code with every combination of our trailers."""

from __future__ import annotations

import grpc
import pytest

from amends_coordinator.core.answer import EXECUTED_TRAILER, SEALED_TRAILER, classify
from amends_coordinator.core.states import Outcome

CODES = [code.name for code in grpc.StatusCode]
REFUSALS = {"FAILED_PRECONDITION", "INVALID_ARGUMENT", "NOT_FOUND", "OUT_OF_RANGE", "ALREADY_EXISTS"}
MISWIRED = {"UNIMPLEMENTED", "PERMISSION_DENIED", "UNAUTHENTICATED"}
SEALED = {SEALED_TRAILER: "1"}
NOT_EXECUTED = {EXECUTED_TRAILER: "no"}


@pytest.mark.parametrize("code", CODES)
def test_a_code_alone(code: str) -> None:
    """S4: five codes are a clear no, three mean that nothing ran, OK means done, and all others prove nothing."""
    if code == "OK":
        expected = Outcome.SUCCEEDED
    elif code in REFUSALS:
        expected = Outcome.REJECTED
    elif code in MISWIRED:
        expected = Outcome.WIRING_FAULT
    else:
        expected = Outcome.UNKNOWN
    assert classify(code, {}, parses=True) is expected


@pytest.mark.parametrize("code", CODES)
def test_a_code_with_the_seal(code: str) -> None:
    """S4: a seal makes a refusal final; it means nothing with a code that is no refusal."""
    plain = classify(code, {}, parses=True)
    expected = Outcome.REJECTED_SEALED if code in REFUSALS else plain
    assert classify(code, SEALED, parses=True) is expected


@pytest.mark.parametrize("code", CODES)
def test_a_code_with_executed_no(code: str) -> None:
    """S4: the participant says that it didn't begin: not sent, whatever the code; OK is done all the same."""
    expected = Outcome.SUCCEEDED if code == "OK" else Outcome.NOT_SENT
    assert classify(code, NOT_EXECUTED, parses=True) is expected
    assert classify(code, {**NOT_EXECUTED, **SEALED}, parses=True) is expected


@pytest.mark.parametrize("value", ["", "0", "yes", "true", "11", b"1"])
def test_only_the_exact_seal_counts(value: str | bytes) -> None:
    """S4: a promise is only what is spelled as one."""
    assert classify("NOT_FOUND", {SEALED_TRAILER: value}, parses=True) is Outcome.REJECTED


@pytest.mark.parametrize("value", ["", "yes", "No", "false", b"no"])
def test_only_the_exact_no_counts(value: str | bytes) -> None:
    """S4: anything else may have been executed."""
    assert classify("UNAVAILABLE", {EXECUTED_TRAILER: value}, parses=True) is Outcome.UNKNOWN


def test_ok_that_does_not_parse_proves_nothing() -> None:
    """S3: the participant did something, but what it did can't be read."""
    assert classify("OK", {}, parses=False) is Outcome.UNKNOWN
    assert classify("OK", SEALED, parses=False) is Outcome.UNKNOWN


@pytest.mark.parametrize("code", ["", "CODE_99", "ok", "not_found"])
def test_a_code_nobody_knows_proves_nothing(code: str) -> None:
    """S4: including no code at all."""
    assert classify(code, SEALED, parses=True) is Outcome.UNKNOWN
