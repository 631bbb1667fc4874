"""Rows that somebody has damaged by hand: each stops its own saga, is told, and goes on once it is mended."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, LiteralString

import psycopg
import pytest
from google.protobuf.any_pb2 import Any as AnyMessage

from amends import Committed
from amends.v1 import operator_service_pb2, registry_service_pb2, saga_pb2
from amends.v1 import saga_service_pb2 as pb
from scenario.v1.scenario_pb2 import ScenarioInput
from tests.integration.api.refusals import refused
from tests.scenarios.desk import Desk
from tests.scenarios.inside import Inside, inside
from tests.scenarios.one_step import BOUND
from tests.scenarios.raw import RawSteps, raw_steps
from tests.scenarios.sagas import ScenarioSaga, steps
from tests.waiting import eventually, pause

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping
    from pathlib import Path

pytestmark = pytest.mark.scenario


@dataclass(frozen=True, slots=True)
class Damage:
    """One value of one row, replaced. `on_postgresql`: another one there, which keeps columns to their kinds."""

    table: LiteralString
    column: LiteralString
    value: object
    on_postgresql: object = None


DAMAGES: Mapping[str, Damage] = {
    "state": Damage("saga", "state", "SULKING"),
    "intent": Damage("intent", "state", "SULKING"),
    "attempts": Damage("intent", "attempts", '[{"number":'),
    "attempt": Damage("intent", "attempts", "[7]"),
    "step": Damage("intent", "step", "nobody"),
    "definition": Damage("saga", "definition_version", "0" * 16),
    "content": Damage("saga_definition", "content", b"\xff"),
    "input": Damage("saga", "input", b"\x0a\xff"),
    "time": Damage("saga", "deadline_time", "0 o'clock, more or less", "-infinity"),
    "created": Damage("saga", "created_time", "0 o'clock, more or less", "-infinity"),
    "format": Damage("saga", "format", 99),
}
"""A saga for each."""

SHOWN_IN_LISTS = frozenset({"intent", "attempts", "attempt", "step", "input"})
"""Lists show sagas without their calls, so what is wrong with these doesn't matter to them."""


class Rows:
    """The database as somebody with SQL sees it, who minds no foreign keys."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._is_sqlite = url.startswith("sqlite")

    def value(self, damage: Damage, key: str) -> object:
        """What stands there."""
        return self._ask(f"SELECT {damage.column} FROM {damage.table} WHERE {KEYS[damage.table]} = {self._mark}", key)

    def put(self, damage: Damage, key: str, value: object) -> None:
        """Write something else there."""
        self._ask(
            f"UPDATE {damage.table} SET {damage.column} = {self._mark} WHERE {KEYS[damage.table]} = {self._mark}",
            value,
            key,
        )

    def damage(self, damage: Damage, key: str) -> object:
        """Damage a row; what stood there."""
        before = self.value(damage, key)
        other = None if self._is_sqlite else damage.on_postgresql
        self.put(damage, key, damage.value if other is None else other)
        return before

    @property
    def _mark(self) -> LiteralString:
        return "?" if self._is_sqlite else "%s"

    def _ask(self, statement: LiteralString, *values: object) -> object:
        if self._is_sqlite:
            with closing(sqlite3.connect(self._url.removeprefix("sqlite:///"), timeout=10)) as file, file:
                return _first(file.execute(statement, values).fetchone())
        with psycopg.connect(self._url) as connection:
            connection.execute("SET session_replication_role = replica")
            cursor = connection.execute(statement, values)
            return _first(cursor.fetchone() if cursor.description else None)


def _first(row: tuple[object, ...] | None) -> object:
    return None if row is None else row[0]


KEYS: Mapping[str, LiteralString] = {
    "saga": "id",
    "intent": "saga_id",
    "saga_definition": "name",
    "participant": "name",
    "participant_instance": "participant",
}


def saga_of(kind: str) -> ScenarioSaga:
    """A saga with a definition of its own, so that a damaged definition is that of one saga."""
    return steps("a", kind)


async def test_damaged_rows_stop_their_own_sagas_until_they_are_mended(ledger_url: str, tmp_path: Path) -> None:
    """L1, L2, S12: a saga whose rows can't be read gets a dead letter, is rolled back by nobody, and keeps nobody
    waiting; mended and retried it ends as if nothing had been.
    """
    rows = Rows(ledger_url)
    settings: dict[str, object] = {"ledger_url": ledger_url, "lease_ttl_s": 1.0, "heartbeat_interval_s": 0.2}
    async with raw_steps() as participant:
        async with inside(tmp_path, **settings) as coordinator:
            for kind in (*DAMAGES, "good"):
                await coordinator.client.start(saga_of(kind), ScenarioInput(amount=1), saga_id=kind)
        before = {kind: rows.damage(damage, key_of(kind)) for kind, damage in DAMAGES.items()}
        async with inside(tmp_path, **settings) as coordinator:
            await coordinator.announce("raw", participant.address)
            assert isinstance(await coordinator.client.handle(saga_of("good"), "good").wait(BOUND), Committed)
            await all_have_dead_letters(coordinator)
            for kind in DAMAGES:
                await is_told_and_refused(coordinator, kind)
            listed = {saga.saga_id async for saga in coordinator.client.list()}
            assert listed == {"good", *(kind for kind in DAMAGES if kind in SHOWN_IN_LISTS)}
            await definition_is_told(coordinator)
            called = {call.metadata["amends-saga-id"] for call in participant.seen}
            assert called == {"good", "input"}, "what was announced is called; its input is read for what follows"
            for kind, damage in DAMAGES.items():
                rows.put(damage, key_of(kind), before[kind])
            await all_end_once_retried(coordinator, participant)


def key_of(kind: str) -> str:
    """The key of the row that is damaged."""
    return saga_of(kind).name if DAMAGES[kind].table == "saga_definition" else kind


async def unreadable(coordinator: Inside) -> dict[str, str]:
    """The open dead letters of sagas that can't be read, by saga."""
    request = operator_service_pb2.ListDeadLettersRequest(reasons=[saga_pb2.DeadLetter.REASON_UNREADABLE])
    letters = (await Desk(coordinator).stub.ListDeadLetters(request)).dead_letters
    assert all(letter.last_error for letter in letters)
    return {letter.saga_id: letter.dead_letter_id for letter in letters}


async def all_have_dead_letters(coordinator: Inside) -> None:
    """Wait until each damaged saga has one."""
    while set(await unreadable(coordinator)) != set(DAMAGES):
        await pause()


async def is_told_and_refused(coordinator: Inside, kind: str) -> None:
    """A look at the saga says that it can't be read and what to do; a person can neither resolve nor retry it."""
    letter_id = (await unreadable(coordinator))[kind]
    desk = Desk(coordinator)
    retry = operator_service_pb2.RetryDeadLetterRequest(dead_letter_id=letter_id, reason="x")
    resolve = operator_service_pb2.ResolveDeadLetterRequest(
        dead_letter_id=letter_id, reason="x", resolution=saga_pb2.RESOLUTION_HAPPENED
    )
    if kind == "input":  # only its payload can't be read, so it is shown
        assert (await refused(desk.stub.ResolveDeadLetter(resolve))).reason == "RESOLUTION_REFUSED"
        return
    calls: list[Awaitable[object]] = [
        coordinator.sagas.GetSaga(pb.GetSagaRequest(saga_id=kind)),
        coordinator.sagas.WaitSaga(pb.WaitSagaRequest(saga_id=kind)),
        desk.stub.RetryDeadLetter(retry),
        desk.stub.ResolveDeadLetter(resolve),
    ]
    if kind == "state":  # whether it may be aborted is read from its state
        calls.append(coordinator.sagas.AbortSaga(pb.AbortSagaRequest(saga_id=kind)))
    for call in calls:
        told = await refused(call)
        assert told.reason == "SAGA_UNREADABLE"
        assert "amends deadletter" in told.message


async def definition_is_told(coordinator: Inside) -> None:
    """Whoever asks for the damaged definition hears that it can't be read, and lists of the others are as ever."""
    damaged, an_input = saga_of("content").name, AnyMessage()
    an_input.Pack(ScenarioInput())
    for call in (
        coordinator.sagas.GetSagaDefinition(pb.GetSagaDefinitionRequest(name=damaged)),
        coordinator.sagas.StartSaga(pb.StartSagaRequest(definition_name=damaged, input=an_input)),
    ):
        told = await refused(call)
        assert told.reason == "DEFINITION_UNREADABLE"
        assert damaged in told.message
    listed = await coordinator.sagas.ListSagaDefinitions(pb.ListSagaDefinitionsRequest())
    assert {each.name for each in listed.definitions} == {saga_of(kind).name for kind in (*DAMAGES, "good")} - {damaged}


async def all_end_once_retried(coordinator: Inside, participant: RawSteps) -> None:
    """Retry every dead letter; the sagas go on from where they were."""
    desk = Desk(coordinator)
    for letter_id in (await unreadable(coordinator)).values():
        await desk.retry(letter_id)
    for kind in DAMAGES:
        assert isinstance(await coordinator.client.handle(saga_of(kind), kind).wait(BOUND), Committed), kind
        assert not (await coordinator.client.get(kind)).attention_required
    await eventually(lambda: participant.has_seen(2 * len(DAMAGES) + 2), what="all were called")


DAMAGED_PARTICIPANTS: Mapping[str, Damage] = {
    "descriptors": Damage("participant", "descriptors", b"\xff"),
    "text": Damage("participant", "descriptors", b"\x0a\x03\x0a\x01\xff"),
    "services": Damage("participant", "services", "of all kinds"),
    "number": Damage("participant", "services", "3"),
    "connection": Damage("participant", "connection", b"\xff"),
    "lease": Damage("participant_instance", "lease_end_time", "0 o'clock, more or less", "-infinity"),
}


async def test_damaged_participants_hold_up_no_start(ledger_url: str, tmp_path: Path) -> None:
    """L2: a coordinator starts whatever stands in participants' rows, knows the others, and those again as soon as they
    announce themselves.
    """
    rows = Rows(ledger_url)
    async with raw_steps() as raw:
        async with inside(tmp_path, ledger_url=ledger_url) as coordinator:
            for name in (*DAMAGED_PARTICIPANTS, "whole"):
                await coordinator.announce(name, raw.address)
        for name, damage in DAMAGED_PARTICIPANTS.items():
            rows.damage(damage, name)
        async with inside(tmp_path, ledger_url=ledger_url) as coordinator:
            request = registry_service_pb2.ListParticipantsRequest()
            at_first = (await coordinator.registry.ListParticipants(request)).participants
            for name in ("new", "whole", *DAMAGED_PARTICIPANTS):
                await coordinator.announce(name, raw.address)
            listed = (await coordinator.registry.ListParticipants(request)).participants
    assert [each.name for each in at_first if each.instances] == ["text", "whole"]
    assert [each.name for each in listed if each.instances] == sorted(("new", "whole", *DAMAGED_PARTICIPANTS))
