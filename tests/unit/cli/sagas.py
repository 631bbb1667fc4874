"""Sagas to draw: built field by field, with fixed times."""

from __future__ import annotations

from google.protobuf.timestamp_pb2 import Timestamp

from amends.v1.saga_pb2 import (
    DIRECTION_ACTION,
    DIRECTION_COMPENSATION,
    DIRECTION_LOOKUP,
    OUTCOME_NOT_SENT,
    OUTCOME_REJECTED,
    OUTCOME_SUCCEEDED,
    OUTCOME_UNKNOWN,
    Attempt,
    DeadLetter,
    Failure,
    Intent,
    Outcome,
    Saga,
)

NODE = "01890a5d-ac96"
BEGIN_S = 1_796_000_000


def at(offset_ms: int) -> Timestamp:
    """The instant that many milliseconds after the sagas of these tests began."""
    return Timestamp(seconds=BEGIN_S + offset_ms // 1_000, nanos=offset_ms % 1_000 * 1_000_000)


def attempt(number: int, offset_ms: int, took_ms: int | None, code: str, outcome: Outcome.ValueType) -> Attempt:
    """One attempt; `took_ms` is None while its outcome is not recorded."""
    made = Attempt(number=number, node=NODE, start_time=at(offset_ms), status_code=code, outcome=outcome)
    if took_ms is not None:
        made.end_time.CopyFrom(at(offset_ms + took_ms))
    return made


def committed_saga() -> Saga:
    """Two steps that went through; the second needed three attempts."""
    return Saga(
        saga_id="order-1042",
        definition_name="order",
        definition_version="0123456789abcdef",
        state=Saga.STATE_COMMITTED,
        point_of_no_return_passed=True,
        create_time=at(0),
        end_time=at(1_420),
        labels={"region": "north", "channel": "web"},
        intents=[
            Intent(
                step="reserve",
                direction=DIRECTION_ACTION,
                state=Intent.STATE_SUCCEEDED,
                method="shop.inventory.v1.InventoryService/Reserve",
                attempts=[attempt(1, 3, 9, "OK", OUTCOME_SUCCEEDED)],
            ),
            Intent(
                step="authorize",
                direction=DIRECTION_ACTION,
                state=Intent.STATE_SUCCEEDED,
                method="shop.payments.v1.PaymentsService/Authorize",
                last_error="no ready channel",
                attempts=[
                    attempt(1, 14, 0, "", OUTCOME_NOT_SENT),
                    attempt(2, 160, 1_000, "DEADLINE_EXCEEDED", OUTCOME_UNKNOWN),
                    attempt(3, 1_400, 12, "OK", OUTCOME_SUCCEEDED),
                ],
            ),
        ],
    )


def stuck_saga() -> Saga:
    """Rolls back; a compensation was tried 40 times and parked, another is still going on."""
    tries = [attempt(number, 1_000 * number, 50, "UNAVAILABLE", OUTCOME_UNKNOWN) for number in (1, 2, 39, 40)]
    return Saga(
        saga_id="order-1043",
        definition_name="order",
        state=Saga.STATE_COMPENSATING,
        attention_required=True,
        compensations_owed=2,
        create_time=at(0),
        failure=Failure(
            step="ship", reason="NO_CARRIER", status_code="FAILED_PRECONDITION", message="no carrier for [bold]Mars"
        ),
        intents=[
            Intent(
                step="ship",
                direction=DIRECTION_ACTION,
                state=Intent.STATE_REJECTED,
                method="shop.shipping.v1.ShippingService/Ship",
                last_error="no carrier for [bold]Mars",
                attempts=[attempt(1, 20, 4, "FAILED_PRECONDITION", OUTCOME_REJECTED)],
            ),
            Intent(
                step="authorize",
                direction=DIRECTION_COMPENSATION,
                state=Intent.STATE_PARKED,
                method="shop.payments.v1.PaymentsService/Void",
                last_error="connection\nrefused\x1b[2J",
                attempts=tries,
                attempt_count=40,
                attempts_left_out={"UNAVAILABLE": 34, "DEADLINE_EXCEEDED": 2},
            ),
            Intent(
                step="reserve",
                direction=DIRECTION_COMPENSATION,
                state=Intent.STATE_PENDING,
                method="shop.inventory.v1.InventoryService/Release",
                next_attempt_time=at(45_000),
                attempts=[attempt(1, 41_000, None, "", Outcome.OUTCOME_UNSPECIFIED)],
            ),
        ],
        dead_letters=[
            DeadLetter(
                dead_letter_id="order-1043/authorize/compensation/1",
                saga_id="order-1043",
                step="authorize",
                direction=DIRECTION_COMPENSATION,
                reason=DeadLetter.REASON_BUDGET_SPENT,
                last_error="connection refused",
                open_time=at(40_100),
            )
        ],
    )


def killed_saga() -> Saga:
    """Its coordinator was killed during the second call; the next one asked what became of it, and undid the rest."""
    nodes = [f"{NODE}-{number}" for number in (1, 2)]
    rows = (
        ("reserve", DIRECTION_ACTION, Intent.STATE_SUCCEEDED, nodes[0], attempt(1, 2, 20, "OK", OUTCOME_SUCCEEDED)),
        ("pay", DIRECTION_ACTION, Intent.STATE_REJECTED, nodes[0], attempt(1, 22, 1_078, "", OUTCOME_UNKNOWN)),
        ("pay", DIRECTION_LOOKUP, Intent.STATE_SUCCEEDED, nodes[1], attempt(1, 1_100, 30, "OK", OUTCOME_SUCCEEDED)),
        ("pay", DIRECTION_COMPENSATION, Intent.STATE_DROPPED, nodes[1], None),
        (
            "reserve",
            DIRECTION_COMPENSATION,
            Intent.STATE_SUCCEEDED,
            nodes[1],
            attempt(1, 1_140, 60, "OK", OUTCOME_SUCCEEDED),
        ),
    )
    saga = Saga(saga_id="order-1044", definition_name="order", state=Saga.STATE_COMPENSATED, create_time=at(0))
    saga.end_time.CopyFrom(at(1_200))
    for step, direction, state, node, made in rows:
        intent = saga.intents.add(step=step, direction=direction, state=state)
        if made is not None:
            made.node = node
            intent.attempts.append(made)
    return saga


def long_saga(gap_ms: int = 7 * 3_600_000) -> Saga:
    """A compensation that was tried 140 times in bursts of calls of a few milliseconds, hours apart, by 40 nodes."""
    saga = Saga(saga_id="order-1045", definition_name="order", state=Saga.STATE_COMPENSATING, create_time=at(0))
    saga.intents.add(
        step="reserve",
        direction=DIRECTION_ACTION,
        state=Intent.STATE_SUCCEEDED,
        create_time=at(1),
        attempts=[attempt(1, 1, 8, "OK", OUTCOME_SUCCEEDED)],
    )
    tries = [attempt(number, 10 + 20 * number, 6, "UNAVAILABLE", OUTCOME_UNKNOWN) for number in range(1, 6)]
    for number in range(121, 141):
        made = attempt(number, gap_ms + 20 * number, 6, "UNAVAILABLE", OUTCOME_UNKNOWN)
        made.node = f"{NODE}-{number}"
        tries.append(made)
    saga.intents.add(
        step="reserve",
        direction=DIRECTION_COMPENSATION,
        state=Intent.STATE_PENDING,
        attempt_count=140,
        attempts=tries,
        attempts_left_out={"UNAVAILABLE": 115},
        create_time=at(12),
        next_attempt_time=at(gap_ms + 4_000),
    )
    return saga
