"""`amends.v1.SagaService`: registers definitions, starts sagas, tells how they stand."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from amends.v1 import saga_service_pb2 as pb
from amends_coordinator.core.definition import StoredDefinition
from amends_coordinator.core.ids import DefinitionVersion
from amends_coordinator.definitions.registration import resolve
from amends_coordinator.grpc_api.definition_list import definition_page
from amends_coordinator.grpc_api.errors import SagaNotFoundError
from amends_coordinator.grpc_api.mapping import (
    definition_message,
    saga_with_dead_letters,
    saga_with_rows,
)
from amends_coordinator.grpc_api.people import claimed_actor, person
from amends_coordinator.grpc_api.saga_list import saga_page, wanted
from amends_coordinator.grpc_api.served_sagas import ServedSagas
from amends_coordinator.grpc_api.trace_context import trace_context
from amends_coordinator.grpc_api.unreadable_payloads import show_as_bytes
from amends_coordinator.grpc_api.validation import (
    NAME,
    REASON_LIMIT_BYTES,
    VERSION,
    Checks,
)
from amends_coordinator.grpc_api.watching import watch_saga

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    from amends.v1 import saga_definition_pb2
    from amends_coordinator.engine.registry import Registry
    from amends_coordinator.grpc_api.handlers import Context
    from amends_coordinator.grpc_api.known_definitions import KnownDefinitions
    from amends_coordinator.grpc_api.starting import Starting
    from amends_coordinator.ports.clock import Clock
    from amends_coordinator.ports.driving import Driving, Operating
    from amends_coordinator.ports.ledger import Ledger


class SagaService:
    """Validates, calls the engine or the ledger, maps."""

    def __init__(
        self,
        *,
        driving: Driving,
        operating: Operating,
        ledger: Ledger,
        registry: Registry,
        definitions: KnownDefinitions,
        starting: Starting,
        clock: Clock,
        ledger_name: str,
    ) -> None:
        self._driving = driving
        self._operating = operating
        self._ledger = ledger
        self._registry = registry
        self._definitions = definitions
        self._starting = starting
        self._served_sagas = ServedSagas(ledger=ledger, registry=registry)
        self._clock = clock
        self._ledger_name = ledger_name
        self._resolving = asyncio.Lock()

    async def RegisterSagaDefinition(
        self, request: pb.RegisterSagaDefinitionRequest, _: Context
    ) -> pb.RegisterSagaDefinitionResponse:
        """Check a definition, resolve what it leaves open, and store it."""
        checks = Checks()
        if not request.HasField("definition"):
            checks.fault("definition", "is required")
        checks.raise_if_any()
        # In a thread, and one after the other: a definition may bring many files, and other requests go on meanwhile.
        async with self._resolving:
            candidate = await asyncio.to_thread(
                self._resolved, request.definition, tuple(self._registry.schemas().values())
            )
        stored = await self._ledger.put_definition(candidate)
        await self._definitions.registered(stored)
        return pb.RegisterSagaDefinitionResponse(definition=definition_message(stored))

    async def GetSagaDefinition(self, request: pb.GetSagaDefinitionRequest, _: Context) -> pb.GetSagaDefinitionResponse:
        """Answer a stored definition."""
        checks = Checks()
        name = checks.text("name", request.name, NAME, example="order")
        version = _version(checks, "version", request.version)
        checks.raise_if_any()
        return pb.GetSagaDefinitionResponse(definition=definition_message(await self._definitions.get(name, version)))

    async def ListSagaDefinitions(
        self, request: pb.ListSagaDefinitionsRequest, _: Context
    ) -> pb.ListSagaDefinitionsResponse:
        """List definitions, newest first, without their descriptors."""
        checks = Checks()
        size = checks.page_size("page_size", request.page_size)
        before = checks.definition_page_token("page_token", request.page_token)
        checks.raise_if_any()
        return await definition_page(self._ledger, size=size, before=before)

    async def StartSaga(self, request: pb.StartSagaRequest, context: Context) -> pb.StartSagaResponse:
        """Start a saga, or answer the one that was started with the same definition's name and an equal input."""
        return await self._starting.carry_out(request, trace_context(context.invocation_metadata()))

    async def GetSaga(self, request: pb.GetSagaRequest, _: Context) -> pb.GetSagaResponse:
        """Answer a saga with its rows."""
        checks = Checks()
        saga_id = checks.saga_id("saga_id", request.saga_id)
        checks.raise_if_any()
        stored = await self._ledger.load(saga_id)
        if stored is None:
            raise SagaNotFoundError(saga_id)
        definition = await self._definitions.of(stored)
        return pb.GetSagaResponse(saga=saga_with_rows(stored, definition, ledger_name=self._ledger_name))

    async def ListSagas(self, request: pb.ListSagasRequest, _: Context) -> pb.ListSagasResponse:
        """List sagas, newest first, without their rows."""
        checks = Checks()
        asked = wanted(checks, request, now=self._clock.now())
        checks.raise_if_any()
        served_by = await self._served_sagas.by(asked.participant) if asked.participant else None
        return await saga_page(self._ledger, self._definitions, asked, served_by)

    async def WaitSaga(self, request: pb.WaitSagaRequest, _: Context) -> pb.WaitSagaResponse:
        """Answer a saga once it has ended, or as it is when the time is over."""
        checks = Checks()
        saga_id = checks.saga_id("saga_id", request.saga_id)
        timeout = request.wait_timeout if request.HasField("wait_timeout") else None
        timeout_s = checks.wait_seconds("wait_timeout", timeout)
        checks.raise_if_any()
        stored = await self._driving.wait(saga_id, timeout_s=timeout_s)
        if stored is None:
            raise SagaNotFoundError(saga_id)
        return pb.WaitSagaResponse(saga=saga_with_dead_letters(stored, await self._definitions.of(stored)))

    def WatchSaga(self, request: pb.WatchSagaRequest, _: Context) -> AsyncGenerator[pb.WatchSagaResponse]:
        """Stream a saga: as it is, then each time it changes, until nothing is left to do."""
        return watch_saga(request, driving=self._driving, definitions=self._definitions, ledger_name=self._ledger_name)

    async def AbortSaga(self, request: pb.AbortSagaRequest, context: Context) -> pb.AbortSagaResponse:
        """Ask a saga to roll back; the answer is read from its row after that was written."""
        checks = Checks()
        saga_id = checks.saga_id("saga_id", request.saga_id)
        reason = checks.words("reason", request.reason, limit_bytes=REASON_LIMIT_BYTES)
        who = claimed_actor(checks, request.claimed_actor, context)
        checks.raise_if_any()
        stored = await self._operating.abort(saga_id, person(context, who, reason))
        if stored is None:
            raise SagaNotFoundError(saga_id)
        definition = await self._definitions.of(stored)
        return pb.AbortSagaResponse(saga=show_as_bytes(saga_with_dead_letters(stored, definition), definition))

    def _resolved(
        self, definition: saga_definition_pb2.SagaDefinition, announced: tuple[FileDescriptorSet, ...]
    ) -> StoredDefinition:
        """A definition as it is to be stored, proven to compile."""
        resolved = resolve(definition, announced=announced)
        candidate = StoredDefinition(
            name=resolved.name,
            version=DefinitionVersion(resolved.version),
            content=resolved.SerializeToString(deterministic=True),
            created_time=self._clock.now(),
        )
        self._definitions.compiled(candidate)
        return candidate


def _version(checks: Checks, path: str, version: str) -> str:
    return checks.text(path, version, VERSION, example="0123456789abcdef") if version else ""
