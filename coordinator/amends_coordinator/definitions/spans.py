"""Timeouts, delays and budgets of a definition: their defaults and their ranges."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from google.protobuf.duration_pb2 import Duration

    from amends.v1 import saga_definition_pb2 as pb
    from amends_coordinator.definitions.errors import FaultList

MILLISECOND_US = 1_000
SECOND_US = 1_000_000
HOUR_US = 3_600 * SECOND_US
DAY_US = 24 * HOUR_US

SAGA_TIMEOUT_US = HOUR_US
CALL_TIMEOUT_US = 5 * SECOND_US
REFUSAL_COUNT = 10
MOST_REFUSALS = 10_000
LONGEST_WINDOW_US = 3_650 * DAY_US


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The defaults of one sort of call."""

    initial_delay_us: int
    maximum_delay_us: int
    total_timeout_us: int


QUICK = Budget(initial_delay_us=100 * MILLISECOND_US, maximum_delay_us=5 * SECOND_US, total_timeout_us=30 * SECOND_US)
"""Actions before the point of no return, and the pivot: somebody waits for them, and they can still be undone."""

PATIENT = Budget(initial_delay_us=SECOND_US, maximum_delay_us=60 * SECOND_US, total_timeout_us=HOUR_US)
"""What has to succeed: actions behind the point of no return, compensations and lookups."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One duration of a definition: where it stands, what it is if it isn't given, and how long it may be.

    Without a default it stays away where it isn't given.
    """

    path: str
    default_us: int | None
    longest_us: int

    def fill(self, duration: Duration, faults: FaultList, *, given: bool) -> int | None:
        """Fill in the default, or check what is given; answers the microseconds, None where they make no sense."""
        if not given:
            if self.default_us is not None:
                duration.FromMicroseconds(self.default_us)
            return self.default_us
        if abs(duration.nanos) > 999_999_999 or duration.seconds * duration.nanos < 0:
            faults.add(
                self.path, "seconds and nanos have different signs or nanos is 1 s or more; send a valid duration"
            )
            return None
        span_us = duration.seconds * SECOND_US + int(duration.nanos / 1_000)
        if not MILLISECOND_US <= span_us <= self.longest_us:
            default = "" if self.default_us is None else f" for {readable(self.default_us)}"
            faults.add(
                self.path,
                f"{readable(span_us)} is out of range; choose from 1 ms to {readable(self.longest_us)},"
                f" or leave it out{default}",
            )
            return None
        return span_us


def readable(span_us: int) -> str:
    """A duration in the largest unit in which it is a whole number."""
    for unit_us, unit in ((DAY_US, "days"), (HOUR_US, "h"), (SECOND_US, "s"), (MILLISECOND_US, "ms")):
        if span_us and span_us % unit_us == 0:
            return f"{span_us // unit_us} {unit}"
    return f"{span_us} us" if span_us else "0 s"


def fill_call_timeout(call: pb.Call, annotated: Duration | None, path: str, faults: FaultList) -> None:
    """A call's timeout: as given, else as its method is annotated, else the default."""
    if not call.HasField("timeout") and annotated is not None:
        call.timeout.CopyFrom(annotated)
    span = Span(path=f"{path}.timeout", default_us=CALL_TIMEOUT_US, longest_us=HOUR_US)
    span.fill(call.timeout, faults, given=call.HasField("timeout"))


def fill_idempotency_window(call: pb.Call, annotated: Duration | None, path: str, faults: FaultList) -> None:
    """How long keys are remembered: as given, else as the method is annotated, else for ever."""
    if not call.HasField("idempotency_window") and annotated is not None:
        call.idempotency_window.CopyFrom(annotated)
    span = Span(path=f"{path}.idempotency_window", default_us=None, longest_us=LONGEST_WINDOW_US)
    span.fill(call.idempotency_window, faults, given=call.HasField("idempotency_window"))


def fill_retry(policy: pb.RetryPolicy, budget: Budget, path: str, faults: FaultList) -> None:
    """A call's retry policy: what is given is checked, the rest filled with the defaults of its sort."""
    initial = Span(path=f"{path}.initial_delay", default_us=budget.initial_delay_us, longest_us=HOUR_US)
    initial_us = initial.fill(policy.initial_delay, faults, given=policy.HasField("initial_delay"))
    maximum = Span(path=f"{path}.maximum_delay", default_us=budget.maximum_delay_us, longest_us=HOUR_US)
    maximum_us = maximum.fill(policy.maximum_delay, faults, given=policy.HasField("maximum_delay"))
    if initial_us is not None and maximum_us is not None and initial_us > maximum_us:
        faults.add(
            f"{path}.maximum_delay",
            f"{readable(maximum_us)} is less than initial_delay, {readable(initial_us)}; set both so that it is not",
        )
    total = Span(path=f"{path}.total_timeout", default_us=budget.total_timeout_us, longest_us=30 * DAY_US)
    total.fill(policy.total_timeout, faults, given=policy.HasField("total_timeout"))
    if policy.maximum_refusal_count == 0:
        policy.maximum_refusal_count = REFUSAL_COUNT
    elif not 1 <= policy.maximum_refusal_count <= MOST_REFUSALS:
        faults.add(
            f"{path}.maximum_refusal_count",
            f"{policy.maximum_refusal_count} is out of range; choose from 1 to {MOST_REFUSALS},"
            f" or leave it out for {REFUSAL_COUNT}",
        )
