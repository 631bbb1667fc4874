"""One page of `ListSagaDefinitions`: read in small pieces, because what is stored carries its descriptors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import structlog

from amends.v1 import saga_service_pb2 as pb
from amends_coordinator.grpc_api.mapping import definition_message
from amends_coordinator.grpc_api.validation import definition_page_token
from amends_coordinator.ports.ledger import UnreadableDefinitionError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from amends.v1.saga_definition_pb2 import SagaDefinition
    from amends_coordinator.core.definition import StoredDefinition
    from amends_coordinator.core.ids import DefinitionVersion, Instant
    from amends_coordinator.ports.ledger import Ledger

Position: TypeAlias = "tuple[Instant, str, DefinitionVersion]"

PIECE = 16
"""Definitions that are read at once: so many sets of descriptors are in memory."""

PAGE_LIMIT_BYTES = 1_048_576
"""A page that has grown to this ends early, so that it fits into what clients take by default (4 MiB)."""

_log: Any = structlog.get_logger(__name__)  # structlog's loggers are untyped proxies


async def definition_page(ledger: Ledger, *, size: int, before: Position | None) -> pb.ListSagaDefinitionsResponse:
    """Definitions, newest first; one whose bytes can't be read is left out and logged."""
    page = pb.ListSagaDefinitionsResponse()
    read_count, page_bytes = 0, 0
    async for stored, following in _newest_first(ledger, before):
        message = _without_descriptors(stored)
        if message is not None:
            page.definitions.append(message)
            page_bytes += message.ByteSize()
        read_count += 1
        if read_count == size or page_bytes >= PAGE_LIMIT_BYTES:
            page.next_page_token = definition_page_token(following)
            break
    return page


async def _newest_first(
    ledger: Ledger, before: Position | None
) -> AsyncIterator[tuple[StoredDefinition, Position | None]]:
    """Definitions, each with the place where the next one is looked for (None: it is the last)."""
    while True:
        piece = await ledger.list_definitions(limit=PIECE, before=before)
        for index, stored in enumerate(piece.definitions, start=1):
            is_last = index == len(piece.definitions)
            yield stored, piece.next if is_last else (stored.created_time, stored.name, stored.version)
        before = piece.next
        if before is None:
            return


def _without_descriptors(stored: StoredDefinition) -> SagaDefinition | None:
    try:
        message = definition_message(stored)
    except UnreadableDefinitionError as error:
        _log.error("definition unreadable", definition=stored.name, version=stored.version, error=str(error))
        return None
    message.ClearField("descriptors")
    return message
