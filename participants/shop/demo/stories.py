"""The four orders of the demo: what each customer wants, what goes wrong, and how it has to end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from shop.demo.audit import Finding
from shop.demo.claims import COMMITTED, COMPENSATED
from shop.money.v1.money_pb2 import Money
from shop.orders.v1.orders_pb2 import PlaceOrder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shop.demo.books import Books
    from shop.demo.claims import Claim

# The services' own deadline for an authorisation is 2 s: one reply comes after it, one not before the crash.
HOLDS = {"payments": ("Authorize:customer_id=carol:3", "Authorize:customer_id=dave:30")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """One order of the demo.

    Attributes:
        what_happens: one sentence on what will go wrong.
        ends: the state that the saga has to end in.
        repeats_authorize: the fault makes the coordinator ask for the authorisation again.
        crashes: the coordinator is killed in the middle.
    """

    saga_id: str
    what_happens: str
    wanted: PlaceOrder
    ends: str
    repeats_authorize: bool = False
    crashes: bool = False


def _order(customer: str, *, sku: str, country: str) -> PlaceOrder:
    return PlaceOrder(
        customer_id=customer,
        sku=sku,
        quantity=1,
        total=Money(currency_code="EUR", minor_units=4_200),
        country=country,
        email=f"{customer}@example.com",
    )


STORIES = (
    Story(
        saga_id="order-1",
        what_happens="Ada orders a teapot, and everything goes through.",
        wanted=_order("ada", sku="teapot", country="Portugal"),
        ends=COMMITTED,
    ),
    Story(
        saga_id="order-2",
        what_happens="Bob lives in Atlantis: the carrier will refuse, and what was done is undone, newest first.",
        wanted=_order("bob", sku="teapot", country="Atlantis"),
        ends=COMPENSATED,
    ),
    Story(
        saga_id="order-3",
        what_happens="Carol's card is authorised, but the answer comes too late: the same key is asked again.",
        wanted=_order("carol", sku="kettle", country="Norway"),
        ends=COMMITTED,
        repeats_authorize=True,
    ),
    Story(
        saga_id="order-4",
        what_happens="Dave's card is authorised, and the coordinator is killed before it can write that down.",
        wanted=_order("dave", sku="kettle", country="Chile"),
        ends=COMMITTED,
        repeats_authorize=True,
        crashes=True,
    ),
)


def unmet_expectations(stories: Sequence[Story], claims: Sequence[Claim], books: Books) -> tuple[Finding, ...]:
    """Where the run was not what the stories tell, for example because a planted fault did not happen."""
    claimed = {claim.saga_id: claim.state for claim in claims}
    found: list[Finding] = []
    for story in stories:
        state = claimed.get(story.saga_id, "unknown to the coordinator")
        if state != story.ends:
            found.append(Finding(story.saga_id, f"is {state}, but had to end {story.ends}"))
        asked = [call for call in books.calls_of(story.saga_id) if call.method == "Authorize"]
        if story.repeats_authorize and (len(asked) < 2 or asked[-1].outcome != "OK" or asked[-1].effect_made):
            found.append(Finding(story.saga_id, "the fault did not happen: authorize was never answered from memory"))
    return tuple(found)
