"""The course of one call below `barrier.effect`: what is written down before its body runs, and what after it.

No transaction is open while the body runs, so others see its call as `started` for as long as nobody has told what
became of it:

* An action is `started` before its body, and `done` with its response, or `rejected`, after it. Found `started` by a
  later attempt, its body runs again: the provider knows the key. A refusal then proves nothing of the earlier attempt.
* A compensation is `started` too, and turns the action's row to `undone` in the same transaction. From then on the
  action is never run again, and one that still runs can't tell any more that it is done.
* A lookup writes down what the provider told it: `done`, or, where its author promises that, `null`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

import grpc

from amends.barrier import statements
from amends.barrier.answers import columns_of, kept, refusal_of, verdict_of
from amends.barrier.databases import commit, connection_of, entering
from amends.barrier.entering import LEAVES_MARK, Entered, enter_action, enter_compensation, enter_lookup
from amends.barrier.errors import BarrierUseError, Unclear
from amends.barrier.rules import Do, Found, is_recorded
from amends.barrier.waiting import limit_waiting
from amends.participant import wire
from amends.participant.context import ActionTarget, Direction, StepKind, StoredAction
from amends.participant.guards import Answer
from amends.participant.refusals import Rejected, TryLater

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Connection
    from sqlalchemy.orm import Session

    from amends.barrier.calls import GuardedCall
    from amends.barrier.statements import Row, Values
    from amends.participant.guards import Verdict


class EffectState(StrEnum):
    """What is known of an action when its compensation or its lookup comes. Of one that never ran no body hears: there
    is nothing to undo or to ask for.
    """

    STARTED = "started"
    """It was begun. Whether it happened only the provider knows: ask by the action's key."""
    DONE = "done"
    """It happened, and its response is stored."""


class EffectCourse:
    """One call, and the transactions before and after its body; written once, for a plain `Session`.

    Attributes:
        call: the call.
        verdict: how it was decided when it came; None: its body decides.
        left_by: the exception that left the block, also where the handler swallowed it afterwards.
        hooks: called with the session just before `done` is committed.
        started_before: an earlier attempt ran the body, to whatever end.
        action: what is known of the action; None while the call is the action itself.
    """

    def __init__(self, call: GuardedCall) -> None:
        self.call = call
        self.verdict: Verdict | None = None
        self.left_by: BaseException | None = None
        self.hooks: list[Callable[[Session], object]] = []
        self.started_before = False
        self.action: EffectState | None = None
        self._entered = False

    @property
    def refused(self) -> Rejected | TryLater | None:
        """The refusal that left the block: it is the answer, whatever the handler made of it."""
        return self.left_by if isinstance(self.left_by, Rejected | TryLater) else None

    def enter(self, session: Session) -> Verdict | None:
        """Write down that the effect begins; a verdict where its body must not run. It is then `verdict`, too.

        Raises:
            BarrierUseError, TryLater: nothing was begun.
        """
        try:
            with entering():
                connection = connection_of(session)
                limit_waiting(connection, self.call)
                leaves = self._begin(connection)
        except Unclear as problem:
            self.verdict = wire.key_in_use(str(problem))
            return self.verdict
        if leaves:
            verdict, self.verdict = self.verdict, None
            commit(session)  # before there is a verdict, which would be sent whatever this raises
            self.verdict = verdict
        self._entered = self.verdict is None
        return self.verdict

    def finish(self, session: Session, response: bytes, abort_reason: bytes | None) -> Verdict:
        """Write down that it is done. Where somebody else told an end first, what that one told is the answer.

        Raises:
            BarrierUseError: the handler returned although its block was never entered, or left by an exception.
            Exception: the database's; then the next attempt finds it started, or done.
        """
        self._check_left_well()
        connection = connection_of(session)
        values = {"state": Found.DONE.value, "response": response, "abort_reason": abort_reason, "message": None}
        if not self._move(connection, values):
            told = self._from_what_stands(connection)
            assert told is not None, "a row that is still started would have been changed"
            return told
        for hook in self.hooks:
            hook(session)
        commit(session)
        return Answer(response=response, abort_reason=abort_reason)

    def record(self, session: Session, refusal: Rejected) -> Verdict:
        """Write down a refusal that is for good; another is only told, and the next attempt runs the body again.

        Where the body was run more than once, a refusal proves nothing of the other times, unless its author says that
        it is the provider's own word on the key (`sealed`).
        """
        values = self._written(refusal) if self._entered else None
        if values is None or (self.started_before and not refusal.sealed):
            return self._told(refusal, sealed=False)
        connection = connection_of(session)
        if self._move(connection, values, alone=not refusal.sealed):
            commit(session)
            return self._told(refusal, sealed=True)
        return self._from_what_stands(connection) or self._told(refusal, sealed=False)

    def _begin(self, connection: Connection) -> bool:
        """Whether what was written is to be committed."""
        direction = self.call.step.direction
        if direction is Direction.ACTION:
            return self._begin_action(enter_action(connection, self.call), connection)
        if direction is Direction.COMPENSATION:
            return self._begin_compensation(enter_compensation(connection, self.call), connection)
        return self._begin_lookup(enter_lookup(connection, self.call))

    def _begin_action(self, entered: Entered, connection: Connection) -> bool:
        if entered.do not in {Do.RUN, Do.RESUME}:
            return self._decide(entered)
        self.started_before = entered.do is Do.RESUME
        if not self.started_before:
            self._start(connection)
        elif not statements.mark_resumed(connection, self.call.step.ledger, self.call.step.key):
            raise self._changed_meanwhile(self.call.step.key)
        return True

    def _begin_compensation(self, entered: Entered, connection: Connection) -> bool:
        if entered.do not in {Do.RUN, Do.RESUME}:
            return self._decide(entered)
        call = self.call
        self.started_before = entered.row is not None and entered.row.key == call.step.key
        if not self.started_before:
            self._start(connection)
        self.action = EffectState.STARTED
        if call.step.action_target is ActionTarget.SAME:
            resumed = self.started_before  # then what was found is its own row
            action = statements.read(connection, call.step.ledger, call.action_key) if resumed else entered.row
            self._undo(action, connection)
        return True

    def _undo(self, action: Row | None, connection: Connection) -> None:
        if action is None:
            raise Unclear(f"the row of {self.call.action_key} is gone, so nobody can tell what there is to undo")
        if action.response is not None:
            self.action = EffectState.DONE
            self.call.step.state.stored_action = StoredAction(action.method, action.response)
        undone = {"state": Found.UNDONE.value}
        if action.state is not Found.UNDONE and not statements.finish(
            connection, self.call.step.ledger, self.call.action_key, was=action.state, values=undone
        ):
            raise self._changed_meanwhile(self.call.action_key)

    def _changed_meanwhile(self, key: str) -> Unclear:
        """What was just read of a row is not so any more: another process told an end, or began to undo."""
        return Unclear(f"the row of {key} has just changed, and this {self.call.step.direction} was not carried out")

    def _begin_lookup(self, entered: Entered) -> bool:
        if entered.do is not Do.RESUME or entered.row is None:
            return self._decide(entered)
        if entered.row.state is Found.UNDONE:
            return self._decide(entered)
        self.started_before, self.action = True, EffectState.STARTED
        return False

    def _decide(self, entered: Entered) -> bool:
        self.verdict = verdict_of(entered, self.call)
        return entered.do in LEAVES_MARK

    def _start(self, connection: Connection) -> None:
        started = {"state": Found.STARTED.value}
        statements.finish(connection, self.call.step.ledger, self.call.step.key, was=Found.RUNNING, values=started)

    @property
    def _key(self) -> str:
        """The key whose row the call's end is written into: a lookup tells of the action."""
        return self.call.action_key if self.call.step.direction is Direction.LOOKUP else self.call.step.key

    def _move(self, connection: Connection, values: Values, *, alone: bool = False) -> bool:
        if alone:
            return statements.finish_alone(connection, self.call.step.ledger, self._key, values)
        return statements.finish(connection, self.call.step.ledger, self._key, was=Found.STARTED, values=values)

    def _written(self, refusal: Rejected) -> Values | None:
        step = self.call.step
        if is_recorded(step.direction, step.kind):
            return {"state": Found.REJECTED.value, **columns_of(kept(refusal))}
        # A lookup whose author promises that the provider will never run the action; a retriable step's can't be.
        sealing = refusal.sealed and refusal.code is grpc.StatusCode.NOT_FOUND
        lookup = step.direction is Direction.LOOKUP and step.kind is not StepKind.RETRIABLE
        return {"state": Found.NULL.value} if lookup and sealing else None

    def _told(self, refusal: Rejected, *, sealed: bool) -> Verdict:
        told = Rejected(refusal.message, reason=refusal.reason, code=refusal.code, sealed=sealed)
        return wire.rejected(told, participant=self.call.served.participant)

    def _from_what_stands(self, connection: Connection) -> Verdict | None:
        """The answer where somebody else has told an end first; None where nobody has."""
        row = statements.read(connection, self.call.step.ledger, self._key)
        if row is not None and row.state is Found.STARTED:
            return None
        if row is not None and row.state is Found.DONE:
            return Answer(response=row.response or b"", abort_reason=row.abort_reason)
        if row is not None and row.state is Found.REJECTED and self.call.step.direction is Direction.ACTION:
            return self._told(refusal_of(row), sealed=True)
        stands = "is gone" if row is None else f"is {row.state} by now"
        return wire.key_in_use(
            f"the row of {self._key} {stands}, so this {self.call.step.direction} does not have the last word on what "
            "it did: ask again"
        )

    def _check_left_well(self) -> None:
        if not self._entered:
            raise BarrierUseError(
                "the barrier could not be entered, and the handler returned all the same: let its exception pass"
            )
        if self.left_by is not None:
            raise BarrierUseError(
                f"{type(self.left_by).__name__} left the barrier's block, so nobody knows what became of the effect, "
                "and the handler returned all the same: let the exception pass, or catch it inside the block"
            ) from self.left_by
