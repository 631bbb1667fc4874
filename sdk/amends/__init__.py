"""amends: write sagas over your own gRPC services, with types, and let the coordinator make amends when one fails.

Import from here; the modules below it may move. What a name needs is loaded when it is first asked for, so that the
generated code below `amends.v1`, which the coordinator and every stub import, costs no more than itself.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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
        OutputPurgedError,
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
    from amends.methods import Call, Method, method
    from amends.options import Codes, Guarantee, OnUnknown, Retry
    from amends.participant import (
        Announcer,
        CannotListenError,
        DescriptorConflictError,
        InvalidParticipantError,
        NotDone,
        NotInStep,
        NotStartedError,
        ParticipantServer,
        Rejected,
        StepContext,
        StepInterceptor,
        SyncAnnouncer,
        SyncStepInterceptor,
        TryLater,
        current_step,
    )
    from amends.results import Committed, Compensated, CompensationFailed, OpenDeadLetter, SagaFailure
    from amends.saga import CompensationFailurePolicy, Saga
    from amends.steps import Step

__all__ = [
    "KEY_NAMESPACE",
    "AmendsError",
    "Announcer",
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
    "NotDone",
    "NotInStep",
    "NotStartedError",
    "NotYetError",
    "OnUnknown",
    "OpenDeadLetter",
    "OutputPurgedError",
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
    "StepInterceptor",
    "SyncAnnouncer",
    "SyncStepInterceptor",
    "TryLater",
    "UnknownFieldError",
    "UnreadableAnswerError",
    "WaitTimeoutError",
    "WrongMessageError",
    "current_step",
    "key_uuid",
    "method",
]

HOMES = ("errors", "options", "keys", "results", "methods", "steps", "saga", "handle", "client", "participant")
"""The modules that the names come from, those that need little first."""

# Hidden from type checkers, which would take every misspelt name for one that this function answers.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """The value of one of the names above, asked for the first time."""
        if name in __all__:
            for home in HOMES:
                module = import_module(f"amends.{home}")
                if name in vars(module):
                    globals()[name] = found = vars(module)[name]
                    return found
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name, obj=import_module(__name__))

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
