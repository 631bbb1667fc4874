"""Ids of traces and spans: computed alike wherever they are asked for, different for everything that is different."""

from __future__ import annotations

import re
from dataclasses import replace

from amends_coordinator.core.ids import Instant, SagaId, StepName
from amends_coordinator.core.states import Direction
from amends_coordinator.core.tracing import attempt_span_id, attempt_traceparent, saga_span_id, trace_of
from tests.unit.grpc_api.samples import compiled_errand, failed_saga

SAGA = failed_saga(compiled_errand()).saga
ORPHAN = replace(SAGA, traceparent="")
STARTER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_every_attempt_has_an_id_of_its_own() -> None:
    """Across attempts, directions, steps, sagas, and sagas of one id in two ledgers."""
    ids = {
        attempt_span_id(each, StepName(step), direction, number)
        for each in (SAGA, replace(SAGA, id=SagaId("s-2")), replace(SAGA, created_time=Instant(SAGA.created_time + 1)))
        for step in ("a", "b")
        for direction in Direction
        for number in (1, 2)
    }
    assert len(ids) == 3 * 2 * 3 * 2
    assert saga_span_id(SAGA) not in ids
    assert all(re.fullmatch("[0-9a-f]{16}", each) for each in ids)


def test_a_starters_trace_is_kept_with_its_decision() -> None:
    """The saga hangs under the starter's span, whatever our own ratio is."""
    for flags, sampled in (("01", True), ("00", False), ("03", True), ("02", False)):
        trace = trace_of(replace(SAGA, traceparent=STARTER[:-2] + flags), ratio=1.0 - sampled)
        assert (trace.trace_id, trace.parent_span_id, trace.sampled) == (STARTER[3:35], STARTER[36:52], sampled)


def test_without_a_starter_the_ratio_decides_by_the_id() -> None:
    """Every node decides alike, and about as many are sampled as are wanted."""
    sagas = [replace(ORPHAN, id=SagaId(f"s-{number}")) for number in range(2_000)]
    assert not any(trace_of(each, ratio=0.0).sampled for each in sagas)
    assert all(trace_of(each, ratio=1.0).sampled for each in sagas)
    assert 100 < sum(trace_of(each, ratio=0.1).sampled for each in sagas) < 300
    assert trace_of(sagas[0], ratio=0.5) == trace_of(sagas[0], ratio=0.5)


def test_the_header_is_well_formed() -> None:
    """W3C trace context, version 00."""
    header = attempt_traceparent(ORPHAN, StepName("a"), Direction.ACTION, 1, ratio=1.0)
    assert re.fullmatch("00-[0-9a-f]{32}-[0-9a-f]{16}-01", header)
