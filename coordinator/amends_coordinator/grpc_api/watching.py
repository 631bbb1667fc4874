"""`WatchSaga`: the stream of one saga's changes."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING

from amends.v1 import saga_service_pb2 as pb
from amends_coordinator.grpc_api.errors import SagaNotFoundError
from amends_coordinator.grpc_api.mapping import saga_with_rows
from amends_coordinator.grpc_api.validation import Checks
from amends_coordinator.ports.driving import UnknownSagaError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from amends_coordinator.definitions.compiled import CompiledDefinition
    from amends_coordinator.grpc_api.known_definitions import KnownDefinitions
    from amends_coordinator.ports.driving import Driving


async def watch_saga(
    request: pb.WatchSagaRequest, *, driving: Driving, definitions: KnownDefinitions, ledger_name: str
) -> AsyncGenerator[pb.WatchSagaResponse]:
    """The saga with its rows, as often as there is something new to tell.

    Raises:
        InvalidRequestError, SagaNotFoundError: before anything is told; and what `Driving.watch` raises.
    """
    checks = Checks()
    saga_id = checks.saga_id("saga_id", request.saga_id)
    known_version = checks.count("known_write_count", request.known_write_count)
    checks.raise_if_any()
    definition: CompiledDefinition | None = None
    async with aclosing(driving.watch(saga_id, known_version=known_version)) as changes:
        try:
            async for stored in changes:
                # Asked for once: a saga keeps its definition, and a ledger that is away must not end the stream.
                definition = definition or await definitions.of(stored)
                yield pb.WatchSagaResponse(saga=saga_with_rows(stored, definition, ledger_name=ledger_name))
        except UnknownSagaError:
            raise SagaNotFoundError(saga_id) from None
