"""One page of `ListSagas`: what the request asks for, checked, and the sagas that answer it."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import structlog

from amends.v1 import saga_service_pb2 as pb
from amends_coordinator.core.ids import Instant
from amends_coordinator.grpc_api.mapping import STATES_BY_NUMBER, saga_summary
from amends_coordinator.grpc_api.unreadable_payloads import show_as_bytes
from amends_coordinator.grpc_api.validation import NAME, VERSION, saga_page_token
from amends_coordinator.ports.ledger import UnreadableDefinitionError
from amends_coordinator.ports.listing import SagaFilter, Span

if TYPE_CHECKING:
    from collections.abc import Iterable

    from amends.v1 import saga_pb2
    from amends_coordinator.core.ids import StepName
    from amends_coordinator.core.states import SagaState
    from amends_coordinator.grpc_api.known_definitions import KnownDefinitions
    from amends_coordinator.grpc_api.validation import Checks
    from amends_coordinator.ports.ledger import Ledger, StoredSaga
    from amends_coordinator.ports.listing import Position, ServedBy

    _Earliest = Literal["earliest_create_time", "earliest_update_time"]
    _Latest = Literal["latest_create_time", "latest_update_time"]

PIECE = 100
"""Sagas that are read at once: so many inputs are in memory."""

PAGE_LIMIT_BYTES = 1_048_576
"""A page that has grown to this ends early, so that it fits into what clients take by default (4 MiB)."""


_log: Any = structlog.get_logger(__name__)  # structlog's loggers are untyped proxies


class Wanted(NamedTuple):
    """A checked request. `fingerprint` tells its filters from others."""

    filter: SagaFilter
    participant: str
    size: int
    before: Position | None
    fingerprint: str


def wanted(checks: Checks, request: pb.ListSagasRequest, *, now: Instant) -> Wanted:
    """What a request asks for; its faults are noted in `checks`."""
    name, version = request.definition_name, request.definition_version
    if name:
        checks.text("definition_name", name, NAME, example="order")
    if version:
        checks.text("definition_version", version, VERSION, example="0123456789abcdef")
        if not name:
            checks.fault("definition_version", "needs definition_name: a version is one of a definition")
    if request.participant:
        checks.text("participant", request.participant, NAME, example="payments")
    stalled_us = checks.stalled_us("stalled_for", request.stalled_for) if request.HasField("stalled_for") else None
    fingerprint = _fingerprint(request)
    return Wanted(
        filter=SagaFilter(
            states=_states(checks, request.states),
            definition_name=name,
            definition_version=version,
            labels=checks.labels("labels", request.labels),
            attention_required=request.attention_required,
            unproven=request.unproven,
            compensations_owed=request.compensations_owed,
            created=_span(checks, request, "earliest_create_time", "latest_create_time"),
            updated=_span(checks, request, "earliest_update_time", "latest_update_time"),
            stalled_since=None if stalled_us is None else Instant(now - stalled_us),
        ),
        participant=request.participant,
        size=checks.page_size("page_size", request.page_size),
        before=checks.saga_page_token("page_token", request.page_token, fingerprint),
        fingerprint=fingerprint,
    )


async def saga_page(
    ledger: Ledger, definitions: KnownDefinitions, asked: Wanted, served_by: ServedBy | None
) -> pb.ListSagasResponse:
    """Sagas, newest first. What can't be read is left out, and the page may be short; its token says whether it is the
    last.
    """
    chosen = replace(asked.filter, served_by=served_by)
    page = pb.ListSagasResponse()
    following, page_bytes, is_short = asked.before, 0, False
    while len(page.sagas) < asked.size and not is_short:
        limit = min(asked.size - len(page.sagas), PIECE)
        piece = await ledger.list_sagas(chosen, limit=limit, before=following)
        is_short = len(piece.sagas) < limit or piece.next is None
        following = piece.next
        for number, stored in enumerate(piece.sagas, start=1):
            done = piece.steps_done.get(stored.saga.id, frozenset())
            message = await _summary(stored, definitions, done)
            if message is not None:
                page.sagas.append(message)
                page_bytes += message.ByteSize()
            if page_bytes >= PAGE_LIMIT_BYTES:
                is_short = True
                following = piece.next if number == len(piece.sagas) else (stored.saga.created_time, stored.saga.id)
                break
    page.next_page_token = saga_page_token(following, asked.fingerprint)
    return page


async def _summary(
    stored: StoredSaga, definitions: KnownDefinitions, steps_done: frozenset[StepName]
) -> saga_pb2.Saga | None:
    try:
        definition = await definitions.of(stored)
    except UnreadableDefinitionError as error:
        _log.error("saga left out of a list", saga_id=stored.saga.id, error=str(error))
        return None
    return show_as_bytes(saga_summary(stored, definition, steps_done=steps_done), definition)


def _states(checks: Checks, numbers: Iterable[int]) -> frozenset[SagaState]:
    found: set[SagaState] = set()
    for index, number in enumerate(numbers):
        if number in STATES_BY_NUMBER:
            found.add(STATES_BY_NUMBER[number])
        else:
            checks.fault(f"states[{index}]", f"{number} is no state of a saga")
    return frozenset(found)


def _span(checks: Checks, request: pb.ListSagasRequest, earliest: _Earliest, latest: _Latest) -> Span:
    """The span between two fields; a side that isn't set is open."""
    span = Span(
        earliest=checks.instant(earliest, getattr(request, earliest)) if request.HasField(earliest) else None,
        latest=checks.instant(latest, getattr(request, latest)) if request.HasField(latest) else None,
    )
    if span.earliest is not None and span.latest is not None and span.earliest > span.latest:
        checks.fault(earliest, f"is later than {latest}, so it would let no saga through")
    return span


def _fingerprint(request: pb.ListSagasRequest) -> str:
    """Tells the filters of a request from others, whatever its page."""
    filters = pb.ListSagasRequest()
    filters.CopyFrom(request)
    filters.ClearField("page_size")
    filters.ClearField("page_token")
    del filters.states[:]
    filters.states.extend(sorted(set(request.states)))
    return hashlib.sha256(filters.SerializeToString(deterministic=True)).hexdigest()[:16]
