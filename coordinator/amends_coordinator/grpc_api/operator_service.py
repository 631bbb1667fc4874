"""`amends.v1.OperatorService`: dead letters, what people do about them, and who did what."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amends.v1 import operator_service_pb2 as pb
from amends_coordinator.core.ids import DeadLetterId
from amends_coordinator.core.states import Direction, Resolution
from amends_coordinator.definitions.errors import quote
from amends_coordinator.grpc_api.errors import DeadLetterNotFoundError, SagaNotFoundError
from amends_coordinator.grpc_api.mapping import (
    REASONS_BY_NUMBER,
    RESOLUTIONS_BY_NUMBER,
    audit_message,
    found_letter_message,
    letter_group_message,
    node_message,
    saga_with_dead_letters,
)
from amends_coordinator.grpc_api.people import claimed_actor, person
from amends_coordinator.grpc_api.unreadable_payloads import show_as_bytes
from amends_coordinator.grpc_api.validation import REASON_LIMIT_BYTES, Checks, text_page_token, type_name
from amends_coordinator.ports.repairs import LetterFilter

if TYPE_CHECKING:
    from collections.abc import Iterable

    from google.protobuf.any_pb2 import Any as AnyMessage

    from amends.v1 import saga_pb2
    from amends_coordinator.core.ids import SagaId
    from amends_coordinator.core.states import DeadLetterReason
    from amends_coordinator.grpc_api.handlers import Context
    from amends_coordinator.grpc_api.known_definitions import KnownDefinitions
    from amends_coordinator.ports.driving import Operating
    from amends_coordinator.ports.ledger import Ledger, StoredSaga
    from amends_coordinator.ports.repairs import FoundLetter


class OperatorService:
    """Validates, calls the engine or the ledger, maps."""

    def __init__(
        self, *, operating: Operating, ledger: Ledger, definitions: KnownDefinitions, payload_limit_bytes: int
    ) -> None:
        self._operating = operating
        self._ledger = ledger
        self._definitions = definitions
        self._payload_limit_bytes = payload_limit_bytes

    async def ListDeadLetters(self, request: pb.ListDeadLettersRequest, _: Context) -> pb.ListDeadLettersResponse:
        """List dead letters, oldest first, and count them by kind with the first page."""
        checks = Checks()
        wanted = LetterFilter(
            saga_id=checks.saga_id("saga_id", request.saga_id) if request.saga_id else None,
            reasons=_reasons(checks, request.reasons),
            method=request.method,
            closed_too=request.closed_too,
        )
        if "\0" in request.method:
            checks.fault("method", "has a NUL character, which no method's name has")
        size = checks.page_size("page_size", request.page_size)
        position = checks.text_page_token("page_token", request.page_token)
        checks.raise_if_any()
        after = None if position is None else (position[0], DeadLetterId(position[1]))
        page = await self._ledger.list_dead_letters(wanted, limit=size, after=after)
        groups = await self._ledger.group_dead_letters(wanted) if after is None else ()
        return pb.ListDeadLettersResponse(
            dead_letters=map(found_letter_message, page.letters),
            next_page_token=text_page_token(page.next),
            groups=map(letter_group_message, groups),
        )

    async def RetryDeadLetter(self, request: pb.RetryDeadLetterRequest, context: Context) -> pb.RetryDeadLetterResponse:
        """Give what is parked a fresh budget."""
        checks = Checks()
        letter_id = checks.letter_id("dead_letter_id", request.dead_letter_id)
        reason = checks.required_words("reason", request.reason, limit_bytes=REASON_LIMIT_BYTES)
        who = claimed_actor(checks, request.claimed_actor, context)
        checks.raise_if_any()
        await self._letter(letter_id)
        stored = await self._operating.retry(letter_id, person(context, who, reason), forced=request.forced)
        return pb.RetryDeadLetterResponse(saga=await self._message(stored))

    async def ResolveDeadLetter(
        self, request: pb.ResolveDeadLetterRequest, context: Context
    ) -> pb.ResolveDeadLetterResponse:
        """Settle what is parked by what a person found."""
        checks = Checks()
        letter_id = checks.letter_id("dead_letter_id", request.dead_letter_id)
        resolution = RESOLUTIONS_BY_NUMBER.get(request.resolution)
        if resolution is None:
            checks.fault("resolution", f"{request.resolution} is none; say what was found, for example HAPPENED")
        if request.HasField("response"):
            checks.size("response", len(request.response.value), limit_bytes=self._payload_limit_bytes)
            if resolution is not Resolution.HAPPENED:
                checks.fault("response", "only what happened has one; leave it out, or say HAPPENED")
        reason = checks.required_words("reason", request.reason, limit_bytes=REASON_LIMIT_BYTES)
        who = claimed_actor(checks, request.claimed_actor, context)
        checks.raise_if_any()
        found = await self._letter(letter_id)
        response = await self._response(request.response, found) if request.HasField("response") else None
        stored = await self._operating.resolve(
            letter_id,
            person(context, who, reason),
            resolution=resolution or Resolution.HAPPENED,
            response=response,
        )
        return pb.ResolveDeadLetterResponse(saga=await self._message(stored))

    async def RunSagaNow(self, request: pb.RunSagaNowRequest, context: Context) -> pb.RunSagaNowResponse:
        """Have tried now whatever a saga waits to try."""
        checks = Checks()
        saga_id = checks.saga_id("saga_id", request.saga_id)
        reason = checks.words("reason", request.reason, limit_bytes=REASON_LIMIT_BYTES)
        who = claimed_actor(checks, request.claimed_actor, context)
        checks.raise_if_any()
        stored = await self._operating.run_now(saga_id, person(context, who, reason))
        return pb.RunSagaNowResponse(saga=await self._found(saga_id, stored))

    async def TerminateSaga(self, request: pb.TerminateSagaRequest, context: Context) -> pb.TerminateSagaResponse:
        """Stop a saga where it is."""
        checks = Checks()
        saga_id = checks.saga_id("saga_id", request.saga_id)
        reason = checks.required_words("reason", request.reason, limit_bytes=REASON_LIMIT_BYTES)
        who = claimed_actor(checks, request.claimed_actor, context)
        checks.raise_if_any()
        stored = await self._operating.terminate(saga_id, person(context, who, reason))
        return pb.TerminateSagaResponse(saga=await self._found(saga_id, stored))

    async def ListAuditEntries(self, request: pb.ListAuditEntriesRequest, _: Context) -> pb.ListAuditEntriesResponse:
        """List what people did, newest first."""
        checks = Checks()
        saga_id = checks.saga_id("saga_id", request.saga_id) if request.saga_id else None
        size = checks.page_size("page_size", request.page_size)
        before = checks.text_page_token("page_token", request.page_token)
        checks.raise_if_any()
        page = await self._ledger.list_audit_entries(saga_id, limit=size, before=before)
        return pb.ListAuditEntriesResponse(
            audit_entries=map(audit_message, page.entries), next_page_token=text_page_token(page.next)
        )

    async def ListNodes(self, request: pb.ListNodesRequest, _: Context) -> pb.ListNodesResponse:
        """List the incarnations that ever held the ledger, newest first."""
        checks = Checks()
        size = checks.page_size("page_size", request.page_size)
        before = checks.text_page_token("page_token", request.page_token)
        checks.raise_if_any()
        rows = [
            row
            for row in await self._ledger.list_nodes()
            if before is None or (row.started_time, str(row.node_id)) < before
        ]
        last = rows[size - 1] if len(rows) > size else None
        return pb.ListNodesResponse(
            nodes=map(node_message, rows[:size]),
            next_page_token="" if last is None else text_page_token((last.started_time, last.node_id)),
        )

    async def _letter(self, letter_id: DeadLetterId) -> FoundLetter:
        found = await self._ledger.load_dead_letter(letter_id)
        if found is None:
            raise DeadLetterNotFoundError(letter_id)
        return found

    async def _response(self, response: AnyMessage, found: FoundLetter) -> bytes:
        """The bytes of the action's response that a person gives, proven to be one."""
        checks, letter = Checks(), found.letter
        if letter.step is None or letter.direction is not Direction.ACTION:
            checks.fault(
                "response", "nothing reads it: only the response of a step's action can be given; leave it out"
            )
            checks.raise_if_any()
            return b""
        stored = await self._saga(found.saga_id)
        definition = await self._definitions.of(stored)
        wanted = definition.response_type(letter.step, Direction.ACTION)
        if type_name(response) != wanted:
            checks.fault(
                "response", f"{found.method} answers a {wanted}, not a {quote(type_name(response))}; send that"
            )
        elif not definition.parser(letter.step, Direction.ACTION)(response.value):
            checks.fault("response", f"the bytes don't parse as {wanted}; send a message of that type")
        checks.raise_if_any()
        return response.value

    async def _saga(self, saga_id: SagaId) -> StoredSaga:
        stored = await self._ledger.load(saga_id)
        if stored is None:
            raise SagaNotFoundError(saga_id)
        return stored

    async def _found(self, saga_id: SagaId, stored: StoredSaga | None) -> saga_pb2.Saga:
        if stored is None:
            raise SagaNotFoundError(saga_id)
        return await self._message(stored)

    async def _message(self, stored: StoredSaga) -> saga_pb2.Saga:
        definition = await self._definitions.of(stored)
        return show_as_bytes(saga_with_dead_letters(stored, definition), definition)


def _reasons(checks: Checks, numbers: Iterable[int]) -> frozenset[DeadLetterReason]:
    found: set[DeadLetterReason] = set()
    for index, number in enumerate(numbers):
        if number in REASONS_BY_NUMBER:
            found.add(REASONS_BY_NUMBER[number])
        else:
            checks.fault(f"reasons[{index}]", f"{number} is no reason that a dead letter of this release can have")
    return frozenset(found)
