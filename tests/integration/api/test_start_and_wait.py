"""A start that waits for the end, while the ledger is away."""

from __future__ import annotations

from typing import TYPE_CHECKING

from google.protobuf.duration_pb2 import Duration

from amends.v1 import saga_pb2
from amends_coordinator.ports.ledger import LedgerUnavailableError
from tests.integration.api.conftest import start_request

if TYPE_CHECKING:
    from tests.integration.api.conftest import Served


async def test_a_durable_start_is_never_told_as_not_stored(served: Served) -> None:
    """S11: the saga is durable before its end is waited for; a ledger that fails meanwhile doesn't turn the answer
    into "nothing was stored".
    """
    await served.register()
    served.ledger.fault = LedgerUnavailableError("away")
    request = start_request("s-1")
    request.wait_timeout.CopyFrom(Duration(seconds=5))
    answer = await served.sagas.StartSaga(request)
    assert answer.started
    assert (answer.saga.saga_id, answer.saga.state) == ("s-1", saga_pb2.Saga.STATE_RUNNING)
