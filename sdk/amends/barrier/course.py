"""The course of one call below `barrier.transaction`, from the claim to the commit: written once, for a `Session`.

The session is the user's between `enter` and the end. Three things keep it honest: the user's own `commit` is refused,
a transaction that was ended some other way is noticed before the response is written, and a block that an exception
left is never committed, even where the handler went on as if nothing had been.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import event

from amends.barrier import statements
from amends.barrier.answers import columns_of, kept, verdict_of
from amends.barrier.databases import commit, connection_of, entering
from amends.barrier.entering import LEAVES_MARK, Entered, check_remembered, enter_action, enter_compensation
from amends.barrier.errors import BarrierUseError, Unclear
from amends.barrier.rules import Do, Found, Question, is_recorded, what_to_do
from amends.barrier.waiting import limit_waiting
from amends.participant import wire
from amends.participant.context import Direction, StoredAction
from amends.participant.guards import Answer
from amends.participant.refusals import Rejected, TryLater

if TYPE_CHECKING:
    from collections.abc import Callable

    from google.protobuf.message import Message
    from sqlalchemy import Connection, RootTransaction
    from sqlalchemy.orm import Session, SessionTransaction

    from amends.barrier.calls import GuardedCall
    from amends.participant.guards import Verdict


class Course:
    """One call and its transaction.

    Attributes:
        verdict: how the call was decided when it came; None: its body decides.
        left_by: the exception that left the block, also where the handler swallowed it afterwards.
        hooks: called with the session just before the response is written.
    """

    def __init__(self, call: GuardedCall) -> None:
        self.verdict: Verdict | None = None
        self.left_by: BaseException | None = None
        self.hooks: list[Callable[[Session], object]] = []
        self._call = call
        self._entered = False
        self._committing = False
        self._transaction: SessionTransaction | None = None
        self._root: RootTransaction | None = None

    @property
    def refused(self) -> Rejected | TryLater | None:
        """The refusal that left the block: it is the answer, whatever the handler made of it."""
        return self.left_by if isinstance(self.left_by, Rejected | TryLater) else None

    def enter(self, session: Session) -> Verdict | None:
        """Claim the call's row; a verdict where the body must not run. It is then `verdict`, too.

        Raises:
            BarrierUseError, TryLater: nothing was begun.
        """
        call = self._call
        if call.step.direction is Direction.LOOKUP:
            raise BarrierUseError(
                "barrier.transaction was opened in a lookup: a lookup only says what became of the action, so its "
                "whole handler is `return await barrier.lookup(sessions, ResponseType)`, without await in a `def`"
            )
        try:
            with entering():
                connection = connection_of(session)
                limit_waiting(connection, call)
                entered = self._claim(connection)
        except Unclear as problem:
            self.verdict = wire.key_in_use(str(problem))
            return self.verdict
        if entered.do in LEAVES_MARK:
            commit(session)  # before there is a verdict, which would be sent whatever this raises
        self.verdict = verdict_of(entered, call)
        if self.verdict is None:
            self._hand_over(session, connection)
        return self.verdict

    def finish(self, session: Session, response: Message, abort_reason: bytes | None) -> Answer:
        """Make what the body did true, together with its response.

        Raises:
            BarrierUseError: it can't be, because of what the handler did to the session or to an exception.
            Exception: the database's; whether it became true isn't known if it came from the commit.
        """
        self._check_whole(session)
        answer = Answer(response=response.SerializeToString(), abort_reason=abort_reason)
        for hook in self.hooks:
            hook(session)
        session.flush()  # before the commit, whose errors cost a connection
        step = self._call.step
        done = {"state": Found.DONE.value, "response": answer.response, "abort_reason": abort_reason}
        connection = connection_of(session)
        if not statements.finish(connection, step.ledger, step.key, was=Found.RUNNING, values=done):
            raise BarrierUseError(
                f"the row of key {step.key} in amends_barrier is not as it was left: the handler changed it, or rolled "
                "back to a savepoint of its own from before the block"
            )
        self._committing = True
        commit(session)
        return answer

    def record(self, session: Session, refusal: Rejected) -> Verdict:
        """Write a refusal down, in a session of its own after the work was rolled back, and answer with it.

        A copy that ran meanwhile, or a mark that was left, decides instead.
        """
        call, final = self._call, kept(refusal)
        if not is_recorded(call.step.direction, call.step.kind):
            unsealed = Rejected(refusal.message, reason=refusal.reason, code=refusal.code)
            return wire.rejected(unsealed, participant=call.served.participant)
        try:
            with entering():
                connection = connection_of(session)
                limit_waiting(connection, call)
                found = statements.claim_or_read(connection, {**call.own_row(Found.REJECTED), **columns_of(final)})
                if found is None:
                    check_remembered(connection, call)
        except Unclear as problem:
            return wire.key_in_use(str(problem))
        if found is None:
            commit(session)
            return wire.rejected(final, participant=call.served.participant)
        if found.request_hash is not None and found.request_hash != call.request_hash:
            return wire.key_in_use(f"key {call.step.key} stands for another request, which came meanwhile")
        verdict = verdict_of(Entered(what_to_do(Question.ACTION, found.state), found), call)
        assert verdict is not None, "a row that stands there is answered from"
        return verdict

    def _claim(self, connection: Connection) -> Entered:
        if self._call.step.direction is Direction.ACTION:
            return enter_action(connection, self._call)
        entered = enter_compensation(connection, self._call)
        if entered.do is Do.RUN and entered.row is not None:
            stored = StoredAction(entered.row.method, entered.row.response or b"")
            self._call.step.state.stored_action = stored
        return entered

    def _hand_over(self, session: Session, connection: Connection) -> None:
        """From here on the session is the user's, watched."""
        self._entered = True
        self._transaction, self._root = session.get_transaction(), connection.get_transaction()
        event.listen(session, "before_commit", self._before_commit)

    def _before_commit(self, session: Session) -> None:
        # Asked before a savepoint is released, too, which is the user's own affair.
        if not self._committing and not session.in_nested_transaction():
            raise BarrierUseError(
                "this session is the barrier's, which commits it after the handler has returned, together with the "
                "response: leave the commit out (session.flush() sends what is pending; savepoints are fine)"
            )

    def _check_whole(self, session: Session) -> None:
        if not self._entered:
            raise BarrierUseError(
                "the barrier could not be entered, and the handler returned all the same: let its exception pass"
            )
        if self.left_by is not None:
            raise BarrierUseError(
                f"{type(self.left_by).__name__} left the barrier's block, which rolls its work back, and the handler "
                "returned all the same: let the exception pass, or catch it inside the block"
            ) from self.left_by
        intact = session.get_transaction() is self._transaction and self._root is not None and self._root.is_active
        if not intact:
            raise BarrierUseError(
                "the session's transaction was ended inside the barrier's block, by rollback(), close() or reset(): "
                "the barrier ends it itself; raise Rejected to undo everything, use begin_nested() to undo a part"
            )
