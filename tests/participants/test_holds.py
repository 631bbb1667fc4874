"""A planted hold is read from the command line and applies to the requests that it names, and to no others."""

from __future__ import annotations

import pytest

from hosting.holds import ReplyHold
from shop.payments.v1.payments_pb2 import AuthorizeRequest, CaptureRequest


def test_a_hold_is_read() -> None:
    """Method, field, value and seconds."""
    hold = ReplyHold.parse("Authorize:customer_id=carol:2.5")
    assert hold == ReplyHold(method="Authorize", field="customer_id", value="carol", seconds=2.5)


@pytest.mark.parametrize("text", ["", "Authorize", "Authorize:customer_id:3", "Authorize:customer_id=carol:soon"])
def test_another_shape_is_refused(text: str) -> None:
    """The text says what the right shape is."""
    with pytest.raises(ValueError, match="METHOD:FIELD=VALUE:SECONDS"):
        ReplyHold.parse(text)


def test_a_hold_applies_to_what_it_names() -> None:
    """Same method, and the same value in the field."""
    hold = ReplyHold.parse("Authorize:customer_id=carol:3")
    assert hold.applies_to("Authorize", AuthorizeRequest(customer_id="carol"))
    assert not hold.applies_to("Authorize", AuthorizeRequest(customer_id="dave"))
    assert not hold.applies_to("Capture", CaptureRequest(authorization_id="carol"))
