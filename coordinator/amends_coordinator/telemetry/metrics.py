"""What is counted and measured, as OpenTelemetry instruments; `telemetry.names` has all names.

Counters count what the engine has made durable, so while no process is killed they equal the ledger's own counts.
Labels come from definitions and participants, never from a saga or an error, and each has a bound: what is registered
beyond it is counted together as "other".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from opentelemetry.metrics import CallbackOptions, Observation

from amends_coordinator.core.states import Outcome, SagaState
from amends_coordinator.telemetry import names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from opentelemetry.metrics import Meter

    from amends_coordinator.core.saga import Attempt, DeadLetter, Intent, Saga
    from amends_coordinator.core.states import DeadLetterReason
    from amends_coordinator.telemetry.gauges import Gauges

LABELS_KEPT = 1_000
"""Different values of one label."""

OTHER = "other"
MICROS = 1e6

CALL_BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
SAGA_BOUNDS_S = (
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
    300.0,
    900.0,
    3600.0,
    86400.0,
)
BATCH_BOUNDS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)

OUTCOMES = {
    SagaState.COMMITTED: "committed",
    SagaState.COMPENSATED: "compensated",
    SagaState.COMPENSATION_FAILED: "compensation_failed",
}
"""The states whose entry counts as an outcome. The last is no end: a saga that is repaired counts once more."""


class Label:
    """Keeps the number of different values of one label within a bound."""

    def __init__(self, limit: int = LABELS_KEPT) -> None:
        self._limit = limit
        self._known: set[str] = set()

    def of(self, value: str) -> str:
        """The value itself, or "other" once there are too many."""
        if value in self._known:
            return value
        if len(self._known) >= self._limit:
            return OTHER
        self._known.add(value)
        return value


class Metrics:
    """All instruments of one coordinator process.

    Args:
        meter: makes them.
        gauges: what is asked for when metrics are collected, in the collector's thread.
    """

    def __init__(self, meter: Meter, gauges: Gauges) -> None:
        self._definitions, self._methods = Label(), Label()
        self._started = meter.create_counter(names.METRIC_STARTED, "{saga}", "Sagas that are durable.")
        self._ended = meter.create_counter(
            names.METRIC_ENDED, "{saga}", "Sagas that committed, were compensated, or could not be compensated."
        )
        self._unproven = meter.create_counter(
            names.METRIC_UNPROVEN, "{saga}", "Sagas that ended on an assumption nobody has proven."
        )
        self._duration = meter.create_histogram(
            names.METRIC_DURATION,
            "s",
            "From a saga's start to its end.",
            explicit_bucket_boundaries_advisory=SAGA_BOUNDS_S,
        )
        self._compensation = meter.create_histogram(
            names.METRIC_COMPENSATION_DURATION,
            "s",
            "From a saga's failure until all was settled.",
            explicit_bucket_boundaries_advisory=SAGA_BOUNDS_S,
        )
        self._opened = meter.create_counter(
            names.METRIC_DEAD_LETTER_OPENED, "{dead_letter}", "Dead letters that were opened."
        )
        self._call = meter.create_histogram(
            names.METRIC_CALL_DURATION,
            "s",
            "One attempt of a call, from its announcement to its answer.",
            explicit_bucket_boundaries_advisory=CALL_BOUNDS_S,
        )
        self._late = meter.create_counter(
            names.METRIC_LATE_ANSWER, "{answer}", "Answers to calls that were closed already; they were dropped."
        )
        self._api_errors = meter.create_counter(
            names.METRIC_API_ERRORS, "{request}", "Requests that ended with an error, by its reason."
        )
        self._driver_failed = meter.create_counter(
            names.METRIC_DRIVER_FAILED, "{failure}", "Unexpected faults while a saga was driven."
        )
        self._unavailable = meter.create_counter(
            names.METRIC_LEDGER_UNAVAILABLE, "{pass}", "Passes of the sweeper that could not reach the ledger."
        )
        self._fenced = meter.create_counter(
            names.METRIC_FENCED, "{node}", "Incarnations of this process that were shut out of the ledger."
        )
        self._batch_size = meter.create_histogram(
            names.METRIC_BATCH_SIZE,
            "{decision}",
            "Decisions in one transaction of the ledger.",
            explicit_bucket_boundaries_advisory=BATCH_SIZES,
        )
        self._batch_duration = meter.create_histogram(
            names.METRIC_BATCH_DURATION,
            "s",
            "One transaction of decisions, its commit included.",
            explicit_bucket_boundaries_advisory=BATCH_BOUNDS_S,
        )
        for counter in (self._late, self._driver_failed, self._unavailable, self._fenced):
            counter.add(0)  # an alert on growth doesn't see a series that begins with its first event
        _observe(meter, gauges)

    def saga_started(self, saga: Saga) -> None:
        """A saga is durable."""
        self._started.add(1, {names.LABEL_DEFINITION: self._definitions.of(saga.plan.name)})

    def saga_moved(self, saga: Saga) -> None:
        """A saga's state changed."""
        outcome = OUTCOMES.get(saga.state)
        if outcome is None:
            return
        definition = self._definitions.of(saga.plan.name)
        about = {names.LABEL_DEFINITION: definition, names.LABEL_OUTCOME: outcome}
        self._ended.add(1, about)
        if not saga.state.ended:
            return
        ended_time = saga.updated_time if saga.ended_time is None else saga.ended_time
        # Not below 0 (a clock may have been set back): a histogram drops that, and would count fewer than there are.
        self._duration.record(max(0, ended_time - saga.created_time) / MICROS, about)
        if saga.unproven:
            self._unproven.add(1, {names.LABEL_DEFINITION: definition})
        if saga.state is SagaState.COMPENSATED and saga.failure is not None:
            spent_s = max(0, ended_time - saga.failure.time) / MICROS
            self._compensation.record(spent_s, {names.LABEL_DEFINITION: definition})

    def dead_letter_opened(self, letter: DeadLetter) -> None:
        """A person is needed."""
        self.letters_opened(letter.reason, 1)

    def letters_opened(self, reason: DeadLetterReason, count: int) -> None:
        """People are needed, for sagas that nobody can decide on."""
        self._opened.add(count, {names.LABEL_REASON: reason.value.lower()})

    def attempt_ended(self, intent: Intent, attempt: Attempt, ended_us: int) -> None:
        """An attempt has ended."""
        outcome = Outcome.UNKNOWN if attempt.outcome is None else attempt.outcome
        about = {
            names.LABEL_METHOD: self._methods.of(intent.method),
            names.LABEL_DIRECTION: intent.direction.value.lower(),
            names.LABEL_OUTCOME: outcome.value.lower(),
        }
        self._call.record(max(0, ended_us - attempt.start_time) / MICROS, about)

    def late_answer(self) -> None:
        """An answer was dropped."""
        self._late.add(1)

    def request_refused(self, method: str, reason: str) -> None:
        """A request ended with an error. Both labels come from our own protos."""
        self._api_errors.add(1, {names.LABEL_METHOD: method, names.LABEL_REASON: reason})

    def driver_failed(self) -> None:
        """Driving a saga raised."""
        self._driver_failed.add(1)

    def ledger_unavailable(self) -> None:
        """A pass of the sweeper failed."""
        self._unavailable.add(1)

    def node_fenced(self) -> None:
        """An incarnation of this process was shut out."""
        self._fenced.add(1)

    def batch_written(self, decision_count: int, duration_s: float) -> None:
        """Decisions were committed together. Called in the ledger's thread."""
        self._batch_size.record(decision_count)
        self._batch_duration.record(duration_s)


def _observe(meter: Meter, gauges: Gauges) -> None:
    def gauge(name: str, unit: str, description: str, label: str, read: Callable[[], Mapping[str, float]]) -> None:
        def look(_: CallbackOptions) -> Iterable[Observation]:
            return [Observation(value, {label: key} if label else {}) for key, value in read().items()]

        meter.create_observable_gauge(name, [look], unit, description)

    state, participant = names.LABEL_STATE, names.LABEL_PARTICIPANT
    gauge(names.METRIC_RUNNING, "{saga}", "Sagas that haven't ended, by state.", state, gauges.running)
    gauge(names.METRIC_DEAD_LETTER_OPEN, "{dead_letter}", "Dead letters that are open.", "", gauges.open_dead_letters)
    gauge(
        names.METRIC_DEAD_LETTER_OLDEST_AGE, "s", "Age of the oldest open one; 0: none.", "", gauges.oldest_dead_letter
    )
    gauge(
        names.METRIC_COMPENSATING_OLDEST_AGE,
        "s",
        "For how long the oldest saga that rolls back has done so; 0: none.",
        "",
        gauges.oldest_compensating,
    )
    gauge(
        names.METRIC_DUE_LAG,
        "s",
        "How late the latest saga is that nobody has taken up yet; 0: none.",
        "",
        gauges.due_lag,
    )
    gauge(names.METRIC_LAST_PASS_AGE, "s", "How long ago the sweeper's last pass ended.", "", gauges.last_pass_age)
    gauge(names.METRIC_IN_FLIGHT, "{call}", "Calls that are under way.", participant, gauges.in_flight)
    gauge(names.METRIC_QUEUE, "{call}", "Calls that wait for a full participant.", participant, gauges.queued)
