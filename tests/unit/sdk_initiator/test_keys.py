"""Keys as UUIDs, and new ids."""

from __future__ import annotations

import uuid

import pytest

from amends import KEY_NAMESPACE, InvalidRequestError, SagaClient, key_uuid
from amends.keys import new_saga_id
from tests.unit.sdk_initiator.coordinator import TellingCoordinator
from tests.unit.sdk_initiator.travel import whole_saga
from typed.v1.typed_pb2 import PlanTrip


def test_the_uuid_of_a_key_never_changes() -> None:
    """S2: a provider that remembers the UUID has to meet the same one in every release."""
    assert str(KEY_NAMESPACE) == "5b0a8a5e-6d5b-5c1e-9a55-7c1d3b1c0a11"
    assert str(key_uuid("default", "order-1042/reserve/action")) == "cfd066db-eccf-5434-9af2-5a87dc4794d9"
    assert key_uuid("staging", "order-1042/reserve/action") != key_uuid("default", "order-1042/reserve/action")


def test_new_ids_are_uuids_of_version_7_in_order_of_time() -> None:
    """S9: an id that the client makes itself is as good as one that the coordinator would make."""
    ids = [uuid.UUID(new_saga_id()) for _ in range(1_000)]
    assert {(each.version, each.variant) for each in ids} == {(7, uuid.RFC_4122)}
    assert len(set(ids)) == len(ids)
    milliseconds = [each.int >> 80 for each in ids]
    assert milliseconds == sorted(milliseconds)


async def test_an_empty_id_starts_nothing(client: SagaClient, coordinator: TellingCoordinator) -> None:
    """S9: an id that a caller has lost on the way is no new id: each repetition would be another saga."""
    with pytest.raises(InvalidRequestError, match=r"saga_id is empty") as started:
        await client.start(whole_saga(), PlanTrip(), saga_id="")
    assert started.value.fields[0].path == "saga_id"
    assert "leave saga_id out" in started.value.what_to_do
    with pytest.raises(InvalidRequestError, match=r"saga_id is empty"):
        await client.run(whole_saga(), PlanTrip(), saga_id="")
    assert coordinator.asked == []
