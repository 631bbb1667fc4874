"""Damaged requests: whatever bytes a client sends, it gets an answer or a refusal with a reason, never a fault."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from amends.v1 import registry_service_pb2, saga_service_pb2
from tests.integration.api.conftest import start_request
from tests.integration.api.refusals import refusal_of
from tests.unit.grpc_api.samples import SERVICE, errand, scenario_files

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from tests.integration.api.conftest import Served

ROUNDS = 60
SEED = 20261130


def good_requests() -> dict[str, Message]:
    """One good request for each method that takes more than an id."""
    start = start_request("")
    start.labels["shop"] = "one"
    return {
        "amends.v1.SagaService/RegisterSagaDefinition": saga_service_pb2.RegisterSagaDefinitionRequest(
            definition=errand()
        ),
        "amends.v1.SagaService/StartSaga": start,
        "amends.v1.SagaService/ListSagas": saga_service_pb2.ListSagasRequest(page_size=5, page_token="MTIvYQ"),
        "amends.v1.RegistryService/RegisterParticipant": registry_service_pb2.RegisterParticipantRequest(
            name="steps",
            services=[SERVICE],
            instance=registry_service_pb2.ParticipantInstance(instance_id="i", address="127.0.0.1:1"),
            descriptors=scenario_files(),
        ),
    }


def damaged(data: bytes, chance: random.Random) -> bytes:
    """The bytes with a few of them changed, cut out or put in."""
    changed = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        place = chance.randrange(len(changed) + 1)
        match chance.randrange(3):
            case 0:
                changed[place : place + 1] = bytes([chance.randrange(256)])
            case 1:
                del changed[place : place + chance.randint(1, 8)]
            case _:
                changed[place:place] = chance.randbytes(chance.randint(1, 4))
    return bytes(changed)


@pytest.mark.parametrize("method", sorted(good_requests()))
async def test_damaged_requests_are_answered_or_refused(served: Served, method: str) -> None:
    """Any bytes end in an answer or in a refusal that says why; no traceback, no INTERNAL, no UNKNOWN (L2)."""
    await served.register()
    good = good_requests()[method].SerializeToString()
    chance = random.Random(f"{SEED}{method}")
    channel: Any = served.channel  # Any: bytes in, bytes out, which grpcio's stubs can't say
    call = channel.unary_unary(f"/{method}")
    for number in range(ROUNDS):
        request = damaged(good, chance)
        try:
            await call(request)
        except grpc.aio.AioRpcError as error:
            refusal = refusal_of(error)
            assert refusal.reason != "COORDINATOR_FAULT", f"round {number} of seed {SEED}{method}: {request!r}"
    assert (await served.sagas.StartSaga(start_request(""))).started
