"""The transition tables: every move of a saga and of an intent. What is not in them is illegal.

All state changes of the core go through `move_saga` and `move_intent`; nothing else writes a state.
"""

from __future__ import annotations

from amends_coordinator.core.states import IntentState, SagaState, Word


class IllegalTransitionError(Exception):
    """The core tried a move that the table doesn't have: a fault of amends. The saga stays as it is; please report
    it.
    """


class SagaMove(Word):
    """Why a saga's state changes."""

    EVERY_STEP_DONE = "every step is done"
    ROLL_BACK = "a step was rejected or may have happened, it was aborted, its time is over, or a person said so"
    EVERYTHING_UNDONE = "everything owed is settled"
    NOTHING_CAN_GO_ON = "what is left needs a person"
    TAKEN_UP_AGAIN = "a person has retried, resolved or terminated something"


class IntentMove(Word):
    """Why an intent's state changes."""

    ANSWERED_OK = "the participant said that it is done"
    REFUSED_FOR_GOOD = "the participant refused clearly"
    GIVEN_UP = "it is not called any more, and nothing is proven yet"
    FOUND_NOTHING = "the compensation found nothing to undo"
    NEEDS_PERSON = "only a person can decide"
    NOT_WANTED = "it never began, or nothing hangs on it, and it is not wanted any more"
    CALL_AGAIN = "it is to be called again"
    PERSON_FOUND = "a named person said what became of it"


SAGA_TRANSITIONS: dict[tuple[SagaState, SagaMove], SagaState] = {
    (SagaState.RUNNING, SagaMove.EVERY_STEP_DONE): SagaState.COMMITTED,
    (SagaState.RUNNING, SagaMove.ROLL_BACK): SagaState.COMPENSATING,
    (SagaState.COMPENSATING, SagaMove.EVERYTHING_UNDONE): SagaState.COMPENSATED,
    (SagaState.COMPENSATING, SagaMove.NOTHING_CAN_GO_ON): SagaState.COMPENSATION_FAILED,
    (SagaState.COMPENSATION_FAILED, SagaMove.TAKEN_UP_AGAIN): SagaState.COMPENSATING,
}

INTENT_TRANSITIONS: dict[tuple[IntentState, IntentMove], IntentState] = {
    (IntentState.PENDING, IntentMove.ANSWERED_OK): IntentState.SUCCEEDED,
    (IntentState.PENDING, IntentMove.REFUSED_FOR_GOOD): IntentState.REJECTED,
    (IntentState.PENDING, IntentMove.GIVEN_UP): IntentState.UNKNOWN,
    (IntentState.PENDING, IntentMove.FOUND_NOTHING): IntentState.NOTHING_TO_UNDO,
    (IntentState.PENDING, IntentMove.NEEDS_PERSON): IntentState.PARKED,
    (IntentState.PENDING, IntentMove.NOT_WANTED): IntentState.DROPPED,
    # What a lookup proves about an action whose own attempts are over.
    (IntentState.UNKNOWN, IntentMove.ANSWERED_OK): IntentState.SUCCEEDED,
    (IntentState.UNKNOWN, IntentMove.REFUSED_FOR_GOOD): IntentState.REJECTED,
    (IntentState.UNKNOWN, IntentMove.NEEDS_PERSON): IntentState.PARKED,
    # A retriable action whose lookup found nothing is repeated.
    (IntentState.UNKNOWN, IntentMove.CALL_AGAIN): IntentState.PENDING,
    # What a person, or a lookup that a person had asked, does with what is parked.
    (IntentState.PARKED, IntentMove.CALL_AGAIN): IntentState.PENDING,
    (IntentState.PARKED, IntentMove.GIVEN_UP): IntentState.UNKNOWN,
    (IntentState.PARKED, IntentMove.ANSWERED_OK): IntentState.SUCCEEDED,
    (IntentState.PARKED, IntentMove.REFUSED_FOR_GOOD): IntentState.REJECTED,
    (IntentState.PARKED, IntentMove.PERSON_FOUND): IntentState.RESOLVED,
    # A saga that was terminated past its point of no return rolls back all the same: this never began.
    (IntentState.PARKED, IntentMove.NOT_WANTED): IntentState.DROPPED,
    # A lookup is asked as often as there is something to ask.
    (IntentState.REJECTED, IntentMove.CALL_AGAIN): IntentState.PENDING,
}


def move_saga(state: SagaState, move: SagaMove) -> SagaState:
    """The state that a saga moves to.

    Raises:
        IllegalTransitionError: the table doesn't have the move.
    """
    target = SAGA_TRANSITIONS.get((state, move))
    if target is None:
        raise IllegalTransitionError(f"a saga in state {state} can't move because {move}")
    return target


def move_intent(state: IntentState, move: IntentMove) -> IntentState:
    """The state that an intent moves to.

    Raises:
        IllegalTransitionError: the table doesn't have the move.
    """
    target = INTENT_TRANSITIONS.get((state, move))
    if target is None:
        raise IllegalTransitionError(f"an intent in state {state} can't move because {move}")
    return target
