"""amends: write sagas over your own gRPC services, with types, and let the coordinator make amends when one fails.

Import from here; the modules below it may move.
"""

from __future__ import annotations

# ---- for those who describe, start and follow sagas ------------------------------------------------------------------
from amends.client import SagaClient
from amends.errors import (
    AmendsError,
    ClientClosedError,
    CoordinatorError,
    CoordinatorUnavailableError,
    DefinitionError,
    DefinitionNotFoundError,
    FieldFault,
    InvalidAddressError,
    InvalidDefinitionError,
    InvalidRequestError,
    NotACoordinatorError,
    NotAValueError,
    NotYetError,
    PastPointOfNoReturnError,
    SagaCompensated,
    SagaCompensationFailed,
    SagaIdInUseError,
    SagaNotFoundError,
    UnknownFieldError,
    UnreadableAnswerError,
    WaitTimeoutError,
    WrongMessageError,
)
from amends.handle import SagaHandle
from amends.keys import KEY_NAMESPACE, key_uuid
from amends.method import Call, Method, method
from amends.options import Codes, Guarantee, OnUnknown, Retry

# ---- for services that take part in sagas ----------------------------------------------------------------------------
from amends.participant import (
    CannotListenError,
    DescriptorConflictError,
    InvalidParticipantError,
    NotInStep,
    NotStartedError,
    ParticipantServer,
    Rejected,
    StepContext,
    TryLater,
    current_step,
)
from amends.results import Committed, Compensated, CompensationFailed, OpenDeadLetter, SagaFailure
from amends.saga import CompensationFailurePolicy, Saga
from amends.steps import Step

__all__ = [
    "KEY_NAMESPACE",
    "AmendsError",
    "Call",
    "CannotListenError",
    "ClientClosedError",
    "Codes",
    "Committed",
    "Compensated",
    "CompensationFailed",
    "CompensationFailurePolicy",
    "CoordinatorError",
    "CoordinatorUnavailableError",
    "DefinitionError",
    "DefinitionNotFoundError",
    "DescriptorConflictError",
    "FieldFault",
    "Guarantee",
    "InvalidAddressError",
    "InvalidDefinitionError",
    "InvalidParticipantError",
    "InvalidRequestError",
    "Method",
    "NotACoordinatorError",
    "NotAValueError",
    "NotInStep",
    "NotStartedError",
    "NotYetError",
    "OnUnknown",
    "OpenDeadLetter",
    "ParticipantServer",
    "PastPointOfNoReturnError",
    "Rejected",
    "Retry",
    "Saga",
    "SagaClient",
    "SagaCompensated",
    "SagaCompensationFailed",
    "SagaFailure",
    "SagaHandle",
    "SagaIdInUseError",
    "SagaNotFoundError",
    "Step",
    "StepContext",
    "TryLater",
    "UnknownFieldError",
    "UnreadableAnswerError",
    "WaitTimeoutError",
    "WrongMessageError",
    "current_step",
    "key_uuid",
    "method",
]
