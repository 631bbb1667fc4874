"""The service of points as a coordinator and an outsider see it: calls of its steps in any order, and its database.

What serves it may be the participant in Go or the one in Python that docs/barrier.md shows.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, TypeVar

import grpc
import psycopg

from amends import key_uuid
from points.v1.points_pb2 import FindSpendRequest, GiveBackRequest, GiveBackResponse, SpendRequest, SpendResponse
from points.v1.points_pb2_grpc import PointsServiceStub

if TYPE_CHECKING:
    from collections.abc import Awaitable

CALL_BOUND_S = 10.0

BEGUN_WITH = 100
"""How many points a customer of a test has."""

Request = TypeVar("Request", SpendRequest, FindSpendRequest)
Response = TypeVar("Response", SpendResponse, GiveBackResponse)


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """What a coordinator says about a call, the same for all calls of one step."""

    saga_id: str
    step: str = "spend"
    ledger: str = "elsewhere"
    kind: str = "compensatable"
    target: str = "same"
    age: timedelta = timedelta()

    def of(self, direction: str) -> list[tuple[str, str]]:
        """The metadata of one call of the step."""
        key, action_key = f"{self.saga_id}/{self.step}/{direction}", f"{self.saga_id}/{self.step}/action"
        metadata = [
            ("idempotency-key", key),
            ("amends-key-uuid", str(key_uuid(self.ledger, key))),
            ("amends-ledger", self.ledger),
            ("amends-saga-id", self.saga_id),
            ("amends-step", self.step),
            ("amends-kind", self.kind),
            ("amends-direction", direction),
            ("amends-attempt", "1"),
            ("amends-step-time", (datetime.now(UTC) - self.age).isoformat()),
        ]
        if direction != "action":
            metadata += [
                ("amends-action-key", action_key),
                ("amends-action-key-uuid", str(key_uuid(self.ledger, action_key))),
            ]
        if direction == "compensation":
            metadata.append(("amends-action-target", self.target))
        return metadata


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A call that did not succeed: its code, and whether trailers say that it never will, or did not begin."""

    code: grpc.StatusCode
    sealed: bool = False
    not_begun: bool = False


class Step:
    """Calls the participant for one step of one saga, as a coordinator would and in any order."""

    def __init__(self, channel: grpc.aio.Channel, metadata: Metadata) -> None:
        self._stub, self._metadata = PointsServiceStub(channel), metadata

    async def spend(self, count: int = 10, *, customer: str = "ann") -> SpendResponse | Refused:
        """The action."""
        request = SpendRequest(customer_id=customer, point_count=count)
        return await _outcome(self._stub.Spend(request, metadata=self._metadata.of("action"), timeout=CALL_BOUND_S))

    async def abort_reasons(self, *, customer: str) -> list[object]:
        """Why the action, the action once more, and the lookup want the saga to be rolled back."""
        request = SpendRequest(customer_id=customer, point_count=10)
        reasons = [
            await abort_reason(self._stub.Spend(request, metadata=self._metadata.of("action"), timeout=CALL_BOUND_S))
            for _ in range(2)
        ]
        found = self._stub.FindSpend(FindSpendRequest(), metadata=self._metadata.of("lookup"), timeout=CALL_BOUND_S)
        return [*reasons, await abort_reason(found)]

    async def unmarked(self) -> SpendResponse | Refused:
        """The action, called by somebody who is no coordinator."""
        return await _outcome(self._stub.Spend(SpendRequest(), timeout=CALL_BOUND_S))

    async def give_back(self) -> GiveBackResponse | Refused:
        """The compensation."""
        metadata = self._metadata.of("compensation")
        return await _outcome(self._stub.GiveBack(GiveBackRequest(), metadata=metadata, timeout=CALL_BOUND_S))

    async def find(self) -> SpendResponse | Refused:
        """The lookup."""
        metadata = self._metadata.of("lookup")
        return await _outcome(self._stub.FindSpend(FindSpendRequest(), metadata=metadata, timeout=CALL_BOUND_S))


async def abort_reason(call: grpc.aio.UnaryUnaryCall[Request, SpendResponse]) -> object:
    """Why a call that succeeded wants its saga to be rolled back; None if it doesn't."""
    await call
    return (await call.trailing_metadata()).get("amends-abort-bin")


async def _outcome(call: Awaitable[Response]) -> Response | Refused:
    try:
        return await call
    except grpc.aio.AioRpcError as refusal:
        trailers = {str(key): value for key, value in refusal.trailing_metadata() or ()}
        return Refused(
            code=refusal.code(),
            sealed=trailers.get("amends-sealed") == "1",
            not_begun=trailers.get("amends-executed") == "no",
        )


class Books:
    """The participant's database, and whoever else has to do with it."""

    def __init__(self, url: str) -> None:
        self._url = url

    def connect(self) -> psycopg.Connection[tuple[object, ...]]:
        """A connection of an outsider, who commits himself."""
        return psycopg.connect(self._url)

    def open_account(self, customer: str, *, watched: bool = False) -> str:
        """A customer with points."""
        with closing(self.connect()) as connection, connection:
            connection.execute("INSERT INTO account VALUES (%s, %s, %s)", (customer, BEGUN_WITH, watched))
        return customer

    def points(self, customer: str) -> object:
        """How many points a customer has."""
        with closing(self.connect()) as connection:
            row = connection.execute("SELECT point_count FROM account WHERE customer_id = %s", (customer,)).fetchone()
        assert row is not None
        return row[0]

    def keys_of(self, saga_id: str) -> object:
        """How many keys of a saga are remembered."""
        with closing(self.connect()) as connection:
            row = connection.execute("SELECT count(*) FROM amends_barrier WHERE saga = %s", (saga_id,)).fetchone()
        assert row is not None
        return row[0]

    def age(self, saga_id: str, age: timedelta) -> None:
        """Let the steps of a saga have begun so long ago."""
        with closing(self.connect()) as connection, connection:
            connection.execute("UPDATE amends_barrier SET step_time = now() - %s WHERE saga = %s", (age, saga_id))

    def waiting(self) -> bool:
        """Whether a call waits for somebody's lock."""
        with closing(self.connect()) as connection:
            asked = (
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
            )
            row = connection.execute(asked).fetchone()
        return row != (0,)
