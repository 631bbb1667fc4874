"""Carries out what people ask of a saga: loads it, has the core decide, writes the decision with its audit entry, and
has the saga looked at.

A verb is decided on the saga as the ledger has it, at whichever node it was asked of, and applied only if nobody wrote
the saga meanwhile; else it is decided again on what stands then. It makes no calls: whoever drives the saga does.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from amends_coordinator.core.operate import decide_verb, is_asked_first
from amends_coordinator.core.saga import Failure
from amends_coordinator.core.states import Direction, IntentState, Resolution
from amends_coordinator.core.text import clean_text
from amends_coordinator.core.verbs import (
    AskFirst,
    Refusal,
    ResolveDeadLetter,
    RetryDeadLetter,
    RunNow,
    Terminate,
    VerbRefusedError,
)
from amends_coordinator.engine.tidings import tell
from amends_coordinator.engine.unbroken import Unbroken
from amends_coordinator.ports.driving import SagaBusyError
from amends_coordinator.ports.ledger import StoredSaga, SupersededError, Write
from amends_coordinator.ports.repairs import AuditEntry

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from amends_coordinator.core.decision import Decision
    from amends_coordinator.core.ids import DeadLetterId, Instant, SagaId, StepName
    from amends_coordinator.core.saga import DeadLetter, Intent, Saga
    from amends_coordinator.core.verbs import Verb
    from amends_coordinator.engine.driver import Surroundings
    from amends_coordinator.ports.clock import Ids
    from amends_coordinator.ports.driving import Person
    from amends_coordinator.ports.repairs import AbortAnswer

DECISIONS_AT_MOST = 20
"""How often a verb is decided again because the saga was written meanwhile, before the person is asked to try again."""

LOOK_INTERVAL_S = 0.05
"""How often is looked whether a participant that is asked first has answered, in seconds."""

LOOKUP_MARGIN_S = 3.0
"""How much longer than the lookup's own timeout is waited for its answer, in seconds: it has to be taken up, to find a
channel and to be written down.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What somebody asks for: the API's method, of what, and what else they said."""

    method: str
    saga_id: SagaId
    person: Person
    letter_id: DeadLetterId | None = None
    details: Mapping[str, object] = field(default_factory=dict[str, object])


class Verbs:
    """Implements `ports.driving.Operating`.

    Args:
        around: what the node works with.
        ids: makes the ids of audit entries.
        nudge: has a saga looked at that was written past its driver, in memory or by the sweeper.
    """

    def __init__(self, around: Surroundings, ids: Ids, *, nudge: Callable[[SagaId], None]) -> None:
        self._around = around
        self._ids = ids
        self._nudge = nudge
        self._unbroken = Unbroken()

    async def abort(self, saga_id: SagaId, person: Person) -> StoredSaga | None:
        """See the port."""
        now = self._around.clock.now()
        cause = Failure(step=None, reason="ABORTED", status_code="", message=clean_text(person.reason), time=now)
        audit = self._audit(Asked(method="AbortSaga", saga_id=saga_id, person=person), now, self._ids.token())
        answer = await self._unbroken.run(self._request_abort(saga_id, cause, audit))
        if answer is None:
            return None
        if not answer.accepted:
            raise VerbRefusedError(
                Refusal.PAST_POINT_OF_NO_RETURN,
                f"saga {saga_id} is past its point of no return and only goes forward, nothing was changed; undo"
                " what it does with a saga of its own",
            )
        return answer.stored

    async def retry(self, letter_id: DeadLetterId, person: Person, *, forced: bool) -> StoredSaga:
        """See the port."""
        asked = await self._about(letter_id, "RetryDeadLetter", person, {"forced": forced})
        return _there(
            asked,
            await self._carry_out(
                asked, lambda: RetryDeadLetter(at=self._around.moment(), letter=letter_id, forced=forced)
            ),
        )

    async def resolve(
        self, letter_id: DeadLetterId, person: Person, *, resolution: Resolution, response: bytes | None
    ) -> StoredSaga:
        """See the port."""
        details = {"resolution": resolution.value, "response_given": response is not None}
        asked = await self._about(letter_id, "ResolveDeadLetter", person, details)

        def verb() -> Verb:
            return ResolveDeadLetter(
                at=self._around.moment(),
                letter=letter_id,
                resolution=resolution,
                person=clean_text(person.name),
                response=response,
            )

        # Whoever undid it by hand knows that it happened. The participant's OK would have it undone a second time.
        if resolution is not Resolution.UNDONE_BY_HAND:
            answered = await self._ask_first(asked, letter_id, verb)
            if answered is not None and _settled_by_answer(answered.saga, letter_id, resolution):
                return answered
        return _there(asked, await self._carry_out(asked, verb))

    async def run_now(self, saga_id: SagaId, person: Person) -> StoredSaga | None:
        """See the port."""
        asked = Asked(method="RunSagaNow", saga_id=saga_id, person=person)
        return await self._carry_out(asked, lambda: RunNow(at=self._around.moment()))

    async def terminate(self, saga_id: SagaId, person: Person) -> StoredSaga | None:
        """See the port."""
        asked = Asked(method="TerminateSaga", saga_id=saga_id, person=person)
        reason = clean_text(person.reason)
        return await self._carry_out(asked, lambda: Terminate(at=self._around.moment(), reason=reason))

    async def _about(
        self, letter_id: DeadLetterId, method: str, person: Person, details: Mapping[str, object]
    ) -> Asked:
        found = await self._around.ledger.load_dead_letter(letter_id)
        if found is None:
            raise VerbRefusedError(
                Refusal.LETTER_NOT_FOUND, f"there is no dead letter {letter_id} in this ledger; list them to see ids"
            )
        return Asked(method=method, saga_id=found.saga_id, person=person, letter_id=letter_id, details=details)

    async def _carry_out(self, asked: Asked, make_verb: Callable[[], Verb]) -> StoredSaga | None:
        """Decide and write until it is written on the saga as it was seen; None where there is no such saga."""
        stored = await self._around.ledger.load(asked.saga_id)
        audit_id = self._ids.token()
        for _ in range(DECISIONS_AT_MOST):
            if stored is None:
                return None
            verb = make_verb()
            decision = decide_verb(stored.saga, verb)
            audit = self._audit(asked, verb.at.now, audit_id)
            try:
                version = await self._unbroken.run(self._append(stored, decision, audit))
            except SupersededError as superseded:
                stored = superseded.current
                continue
            return StoredSaga(saga=decision.saga, version=version, owner=stored.owner)
        raise SagaBusyError(
            f"saga {asked.saga_id} was written {DECISIONS_AT_MOST} times while this was decided, and nothing was "
            "changed; try again"
        )

    async def _request_abort(self, saga_id: SagaId, cause: Failure, audit: AuditEntry) -> AbortAnswer | None:
        answer = await self._around.ledger.request_abort(saga_id, failure=cause, audit=audit)
        if answer is not None and answer.accepted:
            self._nudge(saga_id)
        return answer

    async def _append(self, seen: StoredSaga, decision: Decision, audit: AuditEntry) -> int:
        """Write, then have the saga's driver and telemetry hear of it: a client that goes away changes none of it."""
        version = await self._around.ledger.append_verb(_write(decision, seen.version), audit)
        self._nudge(seen.saga.id)
        tell(self._around.telemetry, decision, before=seen.saga.state)
        return version

    async def _ask_first(
        self, asked: Asked, letter_id: DeadLetterId, make_verb: Callable[[], Verb]
    ) -> StoredSaga | None:
        """Have the participant asked, where it can settle what the person is about to say; answers the saga once that
        is known or the time is over. None: it can't.

        Raises:
            VerbRefusedError: what the person is about to say would be refused anyway: nobody is asked.
        """
        stored = await self._around.ledger.load(asked.saga_id)
        if stored is None or not is_asked_first(stored.saga, letter_id):
            return None
        decide_verb(stored.saga, make_verb())
        letter = _letter(stored.saga, letter_id)
        if letter is None or letter.step is None:
            return None
        details = {**asked.details, "participant_asked_first": True}
        await self._carry_out(
            replace(asked, details=details), lambda: AskFirst(at=self._around.moment(), letter=letter_id)
        )
        timeout_us = stored.saga.plan.by_name[letter.step].call(Direction.LOOKUP).timeout_us
        return await self._once_answered(asked.saga_id, letter.step, timeout_us / 1e6 + LOOKUP_MARGIN_S)

    async def _once_answered(self, saga_id: SagaId, step: StepName, bound_s: float) -> StoredSaga | None:
        """The saga once the step's lookup is over, or as it is when the time is over."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + bound_s
        while True:
            await asyncio.sleep(LOOK_INTERVAL_S)
            stored = await self._around.ledger.load(saga_id)
            over = stored is None or not _is_pending(stored.saga.intent(step, Direction.LOOKUP))
            if over or loop.time() >= end_s:
                return stored

    def _audit(self, asked: Asked, now: Instant, audit_id: str) -> AuditEntry:
        return AuditEntry(
            id=audit_id,
            saga_id=asked.saga_id,
            dead_letter_id=asked.letter_id,
            verb=asked.method,
            actor=asked.person.actor,
            claimed_actor=asked.person.claimed_actor,
            reason=asked.person.reason,
            details=json.dumps(dict(asked.details)),
            created_time=now,
        )


def _there(asked: Asked, stored: StoredSaga | None) -> StoredSaga:
    if stored is None:
        raise LookupError(f"saga {asked.saga_id} has a dead letter, but isn't there: sagas' rows are never removed")
    return stored


def _write(decision: Decision, seen_version: int) -> Write:
    return Write(
        saga=decision.saga,
        seen_version=seen_version,
        intents=decision.records.intents,
        dead_letters=decision.records.dead_letters,
    )


def _letter(saga: Saga, letter_id: DeadLetterId) -> DeadLetter | None:
    return next((letter for letter in saga.dead_letters if letter.id == letter_id), None)


def _is_pending(intent: Intent | None) -> bool:
    return intent is not None and intent.state is IntentState.PENDING


def _settled_by_answer(saga: Saga, letter_id: DeadLetterId, resolution: Resolution) -> bool:
    """Whether the participant's answer settled the dead letter, in agreement with what the person said. If somebody
    else closed it meanwhile, what the person said is still to be decided on, and refused.

    Raises:
        VerbRefusedError: it says the contrary, and the saga goes on from its answer.
    """
    letter = _letter(saga, letter_id)
    if letter is None or letter.step is None or letter.closed_time is None:
        return False
    action = saga.intent(letter.step, Direction.ACTION)
    if action is None or action.state not in (IntentState.SUCCEEDED, IntentState.REJECTED):
        return False
    happened = action.state is IntentState.SUCCEEDED
    if happened and resolution is not Resolution.HAPPENED:
        raise VerbRefusedError(
            Refusal.ACTION_HAPPENED,
            f"the participant was asked and says that the action of {letter.step} happened: the saga goes on from its"
            " answer, and nothing is left to resolve here; look at the saga before you do anything else",
        )
    if not happened and resolution is Resolution.HAPPENED:
        raise VerbRefusedError(
            Refusal.LETTER_CLOSED,
            f"the participant was asked and says that the action of {letter.step} never happened and never will: the"
            " saga goes on from its answer; look at the saga before you do anything else",
        )
    return True
