"""Carries out starts, whichever way they come: a start is checked, stored and begun, and then perhaps waited for."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from amends.v1 import saga_service_pb2 as pb
from amends_coordinator.core.ids import SagaId
from amends_coordinator.definitions.errors import PayloadError
from amends_coordinator.engine.hashing import is_hash_of
from amends_coordinator.grpc_api.errors import SagaIdInUseError
from amends_coordinator.grpc_api.mapping import write_summary, write_with_dead_letters
from amends_coordinator.grpc_api.validation import NAME, VERSION, Checks, type_name
from amends_coordinator.ports.driving import StartRequest
from amends_coordinator.ports.ledger import LedgerUnavailableError, Started

if TYPE_CHECKING:
    from google.protobuf.any_pb2 import Any as AnyMessage

    from amends_coordinator.definitions.compiled import CompiledDefinition
    from amends_coordinator.grpc_api.known_definitions import KnownDefinitions
    from amends_coordinator.grpc_api.trace_context import TraceContext
    from amends_coordinator.ports.driving import Driving
    from amends_coordinator.ports.ledger import Ledger, StoredSaga


class Begun(NamedTuple):
    """A saga that is durable, and how long its end may be waited for, in seconds (None: not at all)."""

    started: Started
    definition: CompiledDefinition
    wait_s: float | None


class Starting:
    """What `StartSaga` does."""

    def __init__(
        self, *, driving: Driving, ledger: Ledger, definitions: KnownDefinitions, payload_limit_bytes: int
    ) -> None:
        self._driving = driving
        self._ledger = ledger
        self._definitions = definitions
        self._payload_limit_bytes = payload_limit_bytes

    async def carry_out(self, request: pb.StartSagaRequest, trace: TraceContext) -> pb.StartSagaResponse:
        """Start a saga, or find the one that was started with the same definition's name and an equal input. May be
        cancelled when nobody waits for the answer any more: what the engine has begun it carries through. Raises what
        `StartSaga` is refused with.
        """
        return await self._answer(await self._begin(request, trace))

    async def _begin(self, request: pb.StartSagaRequest, trace: TraceContext) -> Begun:
        name, version, payload = request.definition_name, request.definition_version, request.input
        definition = self._definitions.known(name, version)
        wait_s = self._check(request, payload, is_known=definition is not None)
        if definition is None:
            definition = await self._definitions.get(name, version)
        compiled = self._definitions.compiled(definition)
        try:
            canonical = compiled.canonical_input(type_name(payload), payload.value)
            compiled.chosen_participants(canonical)
        except PayloadError:
            # It may be the repeated start of a saga whose definition took another input at its time.
            existing = await self._ledger.load(SagaId(request.saga_id)) if request.saga_id else None
            if existing is None:
                raise
            return await self._existing(request, existing, wait_s)
        started = await self._driving.start(
            StartRequest(
                saga_id=SagaId(request.saga_id) if request.saga_id else None,
                definition=definition,
                input=canonical,
                labels=dict(request.labels) if request.labels else {},
                traceparent=trace.traceparent,
                tracestate=trace.tracestate,
            )
        )
        if not started.started:
            return await self._existing(request, started.stored, wait_s)
        return Begun(started, compiled, wait_s)

    async def _answer(self, begun: Begun) -> pb.StartSagaResponse:
        """Answer a start: at once, or as `WaitSaga` would."""
        stored = begun.started.stored
        response = pb.StartSagaResponse(started=begun.started.started)
        if begun.wait_s is None:
            write_summary(response.saga, stored, begun.definition)
            return response
        # The saga is durable, and that is what this client has to hear, whatever happens while it waits.
        with suppress(LedgerUnavailableError):
            stored = await self._driving.wait(stored.saga.id, timeout_s=begun.wait_s) or stored
        write_with_dead_letters(response.saga, stored, begun.definition)
        return response

    def _check(self, request: pb.StartSagaRequest, payload: AnyMessage, *, is_known: bool) -> float | None:
        """Check a start; how long its answer may wait for the end, in seconds (None: not at all).

        Args:
            request: the start.
            payload: its input.
            is_known: whether there is a definition of its name and version, which is all that they can be asked.
        """
        checks = Checks()
        if saga_id := request.saga_id:
            checks.saga_id("saga_id", saga_id)
        if not is_known:
            checks.text("definition_name", request.definition_name, NAME, example="order")
            if request.definition_version:
                checks.text("definition_version", request.definition_version, VERSION, example="0123456789abcdef")
        checks.payload("input", payload, limit_bytes=self._payload_limit_bytes)
        checks.labels("labels", request.labels)
        wait_s = checks.wait_seconds("wait_timeout", request.wait_timeout) if request.HasField("wait_timeout") else None
        checks.raise_if_any()
        return wait_s

    async def _existing(self, request: pb.StartSagaRequest, stored: StoredSaga, wait_s: float | None) -> Begun:
        """The saga that has the id already, if it is the one that is asked for.

        Raises:
            SagaIdInUseError: it has another definition, or another input.
        """
        if stored.saga.plan.name != request.definition_name:
            raise SagaIdInUseError(stored.saga.id, "definition")
        compiled = await self._definitions.of(stored)
        try:
            equal = _is_input_of(stored, compiled.canonical_input(type_name(request.input), request.input.value))
        except PayloadError:
            equal = False
        if not equal:
            raise SagaIdInUseError(stored.saga.id, "input")
        return Begun(Started(started=False, stored=stored), compiled, wait_s)


def _is_input_of(stored: StoredSaga, canonical: bytes) -> bool:
    """Whether a saga was started with this input; of one that retention has emptied the hash is left to compare."""
    if stored.purged is None:
        return canonical == stored.saga.input
    return is_hash_of(canonical, value=stored.purged.value, recipe=stored.purged.recipe)
