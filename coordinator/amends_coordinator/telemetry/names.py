"""The name of every log event, span, metric and attribute: what alerts, dashboards and searches may rely on.

Those that aren't ours are OpenTelemetry's semantic conventions as of release 1.40 (RPC is a release candidate there).
The name of the attribute with the status code is still moving between its releases; it stands here and nowhere else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

# ---- fields ----------------------------------------------------------------------------------------------------------
SAGA_ID = "saga_id"
DEFINITION = "definition"
VERSION = "definition_version"
STATE = "state"
STEP = "step"
DIRECTION = "direction"
METHOD = "method"
ATTEMPT = "attempt"
STATUS_CODE = "status_code"
REASON = "reason"
DURATION_MS = "duration_ms"
COMPENSATIONS_OWED = "compensations_owed"
UNPROVEN = "unproven"
PARTICIPANT = "participant"
INSTANCE = "instance"
ADDRESS = "address"
DEAD_LETTER_ID = "dead_letter_id"
NODE = "node"
PORT = "port"
TASK = "task"
ERROR = "error"
COUNT = "count"
VARIABLE = "variable"
SETTING = "setting"

# ---- events ----------------------------------------------------------------------------------------------------------
SAGA_STARTED = "saga started"
SAGA_MOVED = "saga moved"
SAGA_ENDED = "saga ended"
SAGA_NEEDS_ATTENTION = "saga can't go on without a person"
INTENT_MOVED = "intent moved"
DEAD_LETTER_OPENED = "dead letter opened"
CALL_NOT_SENT = "call not sent"
LATE_ANSWER = "late answer dropped"
REQUEST_REFUSED = "request refused"
SAGA_UNREADABLE = "saga unreadable"
DRIVER_FAILED = "driver failed"
SAGAS_PURGED = "ended sagas emptied by retention"
RETENTION_FAILED = "retention failed"
SETTING_MISSPELT = "environment variable ignored; its name is like that of a setting"
NODE_STARTED = "node started"
NODE_STOPPING = "node stopping"
NODE_STOPPED = "node stopped"
PARTICIPANT_ANNOUNCED = "participant announced"
PARTICIPANT_LEFT = "participant left"
PARTICIPANT_UNREADABLE = "participant unreadable; it is unknown until it is announced or added again"
PARTICIPANT_NOT_ADDED = "static participant not added; it is tried again"
PARTICIPANT_ADDED = "static participant added"
LEDGER_UNAVAILABLE = "ledger unavailable"
LEDGER_BACK = "ledger is back"
NODE_FENCED = "node shut out of the ledger; the next incarnation begins"
TASK_FAILED = "a task beside the engine failed; sagas go on"
NODE_FAILED = "node failed"
EXPORT_FAILED = "telemetry failed; sagas go on"

# ---- spans: names of events, attributes ------------------------------------------------------------------------------
EVENT_FAILURE = "amends.saga.failure"
EVENT_DEAD_LETTER_OPENED = "amends.dead_letter.opened"
EVENT_DEAD_LETTER_CLOSED = "amends.dead_letter.closed"
EVENT_ERROR = "amends.error"

TRACE_SAGA_ID = "amends.saga.id"
TRACE_DEFINITION = "amends.saga.definition"
TRACE_VERSION = "amends.saga.definition_version"
TRACE_STATE = "amends.saga.state"
TRACE_UNPROVEN = "amends.saga.unproven"
TRACE_LEFT_OUT = "amends.saga.attempts_left_out"
TRACE_STEP = "amends.step"
TRACE_DIRECTION = "amends.direction"
TRACE_ATTEMPT = "amends.attempt"
TRACE_OUTCOME = "amends.outcome"
TRACE_PARTICIPANT = "amends.participant"
TRACE_NODE = "amends.node"
TRACE_REASON = "amends.reason"
TRACE_MESSAGE = "amends.message"

RPC_SYSTEM = "rpc.system.name"
RPC_METHOD = "rpc.method"
RPC_STATUS_CODE = "rpc.response.status_code"
ERROR_TYPE = "error.type"
GRPC = "grpc"

# ---- metrics; labels never hold a saga's id or an error's text -------------------------------------------------------
METRIC_STARTED = "amends.saga.started"
METRIC_ENDED = "amends.saga.ended"
METRIC_UNPROVEN = "amends.saga.unproven"
METRIC_RUNNING = "amends.saga.running"
METRIC_DURATION = "amends.saga.duration"
METRIC_COMPENSATION_DURATION = "amends.compensation.duration"
METRIC_DEAD_LETTER_OPENED = "amends.dead_letter.opened"
METRIC_DEAD_LETTER_OPEN = "amends.dead_letter.open"
METRIC_DEAD_LETTER_OLDEST_AGE = "amends.dead_letter.oldest_age"
METRIC_COMPENSATING_OLDEST_AGE = "amends.saga.compensating.oldest_age"
METRIC_CALL_DURATION = "amends.call.duration"
METRIC_LATE_ANSWER = "amends.call.late_answer"
METRIC_API_ERRORS = "amends.api.errors"
METRIC_DUE_LAG = "amends.due.lag"
METRIC_LAST_PASS_AGE = "amends.sweeper.last_pass_age"  # noqa: S105 - no password
METRIC_BATCH_SIZE = "amends.ledger.batch.size"
METRIC_BATCH_DURATION = "amends.ledger.batch.duration"
METRIC_LEDGER_UNAVAILABLE = "amends.ledger.unavailable"
METRIC_FENCED = "amends.node.fenced"
METRIC_DRIVER_FAILED = "amends.driver.failed"
METRIC_IN_FLIGHT = "amends.participant.in_flight"
METRIC_QUEUE = "amends.participant.queue"

LABEL_DEFINITION = "definition"
LABEL_OUTCOME = "outcome"
LABEL_STATE = "state"
LABEL_REASON = "reason"
LABEL_METHOD = "method"
LABEL_DIRECTION = "direction"
LABEL_PARTICIPANT = "participant"

LABELS: Mapping[str, tuple[str, ...]] = {
    METRIC_STARTED: (LABEL_DEFINITION,),
    METRIC_ENDED: (LABEL_DEFINITION, LABEL_OUTCOME),
    METRIC_UNPROVEN: (LABEL_DEFINITION,),
    METRIC_RUNNING: (LABEL_STATE,),
    METRIC_DURATION: (LABEL_DEFINITION, LABEL_OUTCOME),
    METRIC_COMPENSATION_DURATION: (LABEL_DEFINITION,),
    METRIC_DEAD_LETTER_OPENED: (LABEL_REASON,),
    METRIC_CALL_DURATION: (LABEL_METHOD, LABEL_DIRECTION, LABEL_OUTCOME),
    METRIC_API_ERRORS: (LABEL_METHOD, LABEL_REASON),
    METRIC_IN_FLIGHT: (LABEL_PARTICIPANT,),
    METRIC_QUEUE: (LABEL_PARTICIPANT,),
}
"""The labels of each metric that has some."""
