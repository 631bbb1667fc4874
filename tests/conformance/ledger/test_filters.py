"""Every filter of lists of sagas, alone and with others: each adapter lets the same sagas through."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from types import MappingProxyType

import pytest

from amends_coordinator.core.definition import StoredDefinition
from amends_coordinator.core.ids import DeadLetterId, DefinitionVersion, Instant, SagaId
from amends_coordinator.core.saga import DeadLetter, Saga
from amends_coordinator.core.states import DeadLetterReason, SagaState
from amends_coordinator.ledger import lanes, listing
from amends_coordinator.ports.ledger import Ledger
from amends_coordinator.ports.listing import SagaFilter, ServedBy, Span
from tests.conformance.ledger.rigs import Rig, opened
from tests.conformance.ledger.sagas import DEFINITION, after, new, plan_of, saga, succeeded, write

COUNT = 90
LIMIT = 24
NEWER = replace(DEFINITION, version=DefinitionVersion("1111111111111111"), created_time=after(1))
OTHER = StoredDefinition(
    name="refund", version=DefinitionVersion("2222222222222222"), content=b"refund", created_time=after(2)
)

BANK_A = "bank-a"
SERVED = ServedBy(participant=BANK_A, names=frozenset({OTHER.name}), versions=frozenset({(NEWER.name, NEWER.version)}))

Test = Callable[[Saga, frozenset[str]], bool]

ALONE: dict[str, tuple[SagaFilter, Test]] = {
    "nothing": (SagaFilter(), lambda _, __: True),
    "definition": (SagaFilter(definition_name="order"), lambda each, _: each.plan.name == "order"),
    "another definition": (SagaFilter(definition_name="refund"), lambda each, _: each.plan.name == "refund"),
    "version": (
        SagaFilter(definition_name="order", definition_version=NEWER.version),
        lambda each, _: each.plan.name == "order" and each.plan.version == NEWER.version,
    ),
    "common label": (
        SagaFilter(labels=MappingProxyType({"team": "shop"})),
        lambda each, _: each.labels.get("team") == "shop",
    ),
    "rare label": (
        SagaFilter(labels=MappingProxyType({"ticket": "ä 1"})),
        lambda each, _: each.labels.get("ticket") == "ä 1",
    ),
    "two labels": (
        SagaFilter(labels=MappingProxyType({"team": "shop", "tenant": "t2"})),
        lambda each, _: each.labels.get("team") == "shop" and each.labels.get("tenant") == "t2",
    ),
    "unknown label": (SagaFilter(labels=MappingProxyType({"team": "none"})), lambda _, __: False),
    "attention": (SagaFilter(attention_required=True), lambda each, _: each.attention_required),
    "unproven": (SagaFilter(unproven=True), lambda each, _: each.unproven),
    "owed": (SagaFilter(compensations_owed=True), lambda each, _: each.compensations_owed > 0),
    "participant": (
        SagaFilter(served_by=SERVED),
        lambda each, chosen: each.plan.version == NEWER.version or each.plan.name == OTHER.name or BANK_A in chosen,
    ),
    "participant of an input alone": (
        SagaFilter(served_by=ServedBy(participant=BANK_A)),
        lambda _, chosen: BANK_A in chosen,
    ),
    "updated since": (
        SagaFilter(updated=Span(earliest=after(600))),
        lambda each, _: each.updated_time >= after(600),
    ),
    "updated until": (SagaFilter(updated=Span(latest=after(600))), lambda each, _: each.updated_time <= after(600)),
    "updated within": (
        SagaFilter(updated=Span(earliest=after(500), latest=after(560))),
        lambda each, _: after(500) <= each.updated_time <= after(560),
    ),
    "stalled": (
        SagaFilter(stalled_since=after(500)),
        lambda each, _: (not each.state.ended or each.due_time is not None) and each.progress_time <= after(500),
    ),
}

STATES: dict[str, frozenset[SagaState]] = {
    "any state": frozenset(),
    "running": frozenset({SagaState.RUNNING}),
    "ended": frozenset({SagaState.COMMITTED, SagaState.COMPENSATED}),
    "three states": frozenset({SagaState.COMMITTED, SagaState.COMPENSATING, SagaState.COMPENSATION_FAILED}),
}

TIMES: dict[str, Span] = {
    "any time": Span(),
    "since": Span(earliest=after(300)),
    "until": Span(latest=after(300)),
    "within": Span(earliest=after(200), latest=after(640)),
}


COMBINED = (
    ("any state", "any time"),
    ("running", "any time"),
    ("ended", "since"),
    ("ended", "until"),
    ("three states", "any time"),
    ("three states", "within"),
    ("any state", "within"),
)


def made(number: int) -> tuple[Saga, Saga, tuple[str, ...]]:
    """A saga as it is started, as it stands later, and the participants that its input chose."""
    definition = (DEFINITION, DEFINITION, NEWER, OTHER)[number % 4]
    began = replace(
        saga(f"saga-{number:03d}", time=after(10 * (number // 2))),
        plan=plan_of(definition),
        labels=MappingProxyType(
            {"team": "shop" if number % 9 else "warehouse", "tenant": f"t{number % 3}"}
            | ({"ticket": "ä 1"} if number in (11, 60) else {})
        ),
    )
    state = tuple(SagaState)[number % 5]
    written = Instant(began.created_time + 7 * (number % 50))
    letter = DeadLetter(
        id=DeadLetterId(f"{began.id}/-/-/1"),
        step=None,
        direction=None,
        reason=DeadLetterReason.TIMED_OUT,
        last_error="",
        opened_time=written,
        closed_time=None if number % 12 == 3 else written,
    )
    rolls_back = state in (SagaState.COMPENSATING, SagaState.COMPENSATION_FAILED)
    stands = replace(
        began,
        state=state,
        intents=(succeeded(began.intents[0], time=written),),
        due_time=None if state.ended and number % 10 != 3 else written,
        updated_time=written,
        progress_time=Instant(began.created_time + 3 * (number % 50)),
        unproven=number % 7 == 1,
        compensations_owed=number % 3 if rolls_back else 0,
        dead_letters=(letter,) if number % 6 == 3 else (),
        ended_time=written if state.ended else None,
    )
    chosen = {0: (BANK_A, "bank-b"), 5: ("bank-b",), 7: (BANK_A,)}.get(number % 11, ())
    return began, stands, chosen


async def fill(ledger: Ledger) -> list[tuple[Saga, frozenset[str]]]:
    """Store sagas of every kind; answers them newest first, with what their inputs chose."""
    for definition in (NEWER, OTHER):
        await ledger.put_definition(definition)
    sagas: list[tuple[Saga, frozenset[str]]] = []
    for began, stands, chosen in map(made, range(COUNT)):
        await ledger.start(replace(new(began), participants=chosen))
        await ledger.append(replace(write(stands, 1), dead_letters=stands.dead_letters))
        sagas.append((stands, frozenset(chosen)))
    return sorted(sagas, key=lambda each: (each[0].created_time, each[0].id), reverse=True)


async def listed(ledger: Ledger, wanted: SagaFilter, *, limit: int) -> list[str]:
    """The ids on all pages."""
    found: list[str] = []
    before: tuple[Instant, SagaId] | None = None
    for _ in range(2 * COUNT):
        page = await ledger.list_sagas(wanted, limit=limit, before=before)
        assert len(page.sagas) <= limit
        assert page.next is None or before is None or page.next < before
        found += [each.saga.id for each in page.sagas]
        before = page.next
        if before is None:
            return found
    raise AssertionError(f"there is no last page: {wanted}")


async def disagreements(ledger: Ledger, combined: Sequence[tuple[str, str]], *, limit: int) -> list[str]:
    """The combinations of filters whose list isn't what it should be."""
    sagas = await fill(ledger)
    wrong: list[str] = []
    for (name, (alone, test)), (state, time) in product(ALONE.items(), combined):
        states, created = STATES[state], TIMES[time]
        found = await listed(ledger, replace(alone, states=states, created=created), limit=limit)
        expected = [
            each.id
            for each, chosen in sagas
            if test(each, chosen) and (not states or each.state in states) and created.holds(each.created_time)
        ]
        if found != expected:
            wrong.append(f"{name}, {state}, {time}: {found} instead of {expected}")
    return wrong


async def test_each_filter_alone_and_with_state_and_time(ledger: Ledger) -> None:
    """Promise: a list holds what every given filter lets through, newest first, each saga on exactly one page."""
    assert await disagreements(ledger, COMBINED, limit=LIMIT) == []


async def test_bounded_work_leaves_nothing_out(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Promise: a page that ends because its work is bounded is short, and the pages together are the whole list."""
    monkeypatch.setattr(listing, "PROBE", 3)
    monkeypatch.setattr(listing, "FIRST_SLICE", 2)
    monkeypatch.setattr(listing, "MOST_VISITS", 9)
    monkeypatch.setattr(listing, "MOST_IN_WINDOW", 20)
    monkeypatch.setattr(lanes, "MOST_DEFINITIONS", 0)
    ledger = await opened(rig)
    assert await disagreements(ledger, (("three states", "within"),), limit=6) == []
    await ledger.close()


async def test_a_list_stands_while_sagas_are_started(ledger: Ledger) -> None:
    """Promise: what is started between two pages moves nothing on the following ones."""
    sagas = await fill(ledger)
    first = await ledger.list_sagas(SagaFilter(), limit=LIMIT, before=None)
    for number in range(5):
        await ledger.start(new(saga(f"late-{number}", time=after(10_000 + number))))
    second = await ledger.list_sagas(SagaFilter(), limit=LIMIT, before=first.next)
    assert [each.saga.id for each in (*first.sagas, *second.sagas)] == [each.id for each, _ in sagas[: 2 * LIMIT]]


async def test_steps_that_are_done_are_told(ledger: Ledger) -> None:
    """Promise: a list tells how far each saga is although it leaves its intents out."""
    sagas = await fill(ledger)
    page = await ledger.list_sagas(SagaFilter(), limit=COUNT, before=None)
    running = [each for each, _ in sagas if each.state is not SagaState.COMMITTED]
    assert {each.id: page.steps_done[each.id] for each in running} == {each.id: {"reserve"} for each in running}
