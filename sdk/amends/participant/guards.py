"""What a handler may open around its work (`amends.barrier`), and how it decides with the wrapper how the call ends.

A guard is noted in the call's state when the handler opens it. Leaving its block ends nothing: what it guards becomes
true only after the handler has returned, together with the response. So the wrapper tells the guard how the handler
ended, and sends what the guard makes of it:

* a guard that was decided when it was opened (the key is known) has its `verdict` from then on, and that is sent,
  whatever the handler did: nothing in user code can swallow it;
* after a normal return, `returned` commits and gives the answer; where it raises, nothing is known (`UNKNOWN`);
* after everything else, `raised` rolls back, and gives the refusal if it has written one down.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from amends.participant.wire import Refusal

if TYPE_CHECKING:
    from collections.abc import Callable

    from google.protobuf.message import Message


class Answer(NamedTuple):
    """The call succeeds.

    Attributes:
        response: the response's bytes.
        abort_reason: UTF-8; the saga is to be rolled back all the same. None: it is not.
    """

    response: bytes
    abort_reason: bytes | None = None


Verdict: TypeAlias = Answer | Refusal


about_to_commit: ContextVar[Callable[[], None] | None] = ContextVar("amends_about_to_commit", default=None)
"""Called just before a guard's `returned`. A rehearsal lets the process die there, by raising what is no `Exception`;
then the guard's `raised` is called instead.
"""


def tell_about_to_commit() -> None:
    """Say that a guard is about to make true what its handler did; raises what stands for the process's death."""
    tell = about_to_commit.get()
    if tell is not None:
        tell()


class Decided(BaseException):
    """Leaves the handler: its guard has a verdict. No `Exception`, so that user code does not catch it by accident."""


class Guard(Protocol):
    """A guard of a handler on the event loop. Each of its methods is called at most once, and never both."""

    @property
    def verdict(self) -> Verdict | None:
        """How the call was decided when the guard was opened; None: the handler decides."""
        ...

    async def returned(self, response: Message, *, abort_reason: bytes | None) -> Verdict:
        """The handler returned `response`: make what it did true, and answer with it.

        Runs to its end also when the caller is gone.

        Raises:
            Exception: it isn't known whether it became true.
        """
        ...

    async def raised(self, fault: BaseException) -> Verdict | None:
        """The handler ended otherwise: undo what it did. A verdict where one was written down, None to answer as ever.

        Raises:
            Exception: what has become of it isn't known.
        """
        ...


class SyncGuard(Protocol):
    """The same for a handler in a thread."""

    @property
    def verdict(self) -> Verdict | None:
        """See `Guard`."""
        ...

    def returned(self, response: Message, *, abort_reason: bytes | None) -> Verdict:
        """See `Guard`."""
        ...

    def raised(self, fault: BaseException) -> Verdict | None:
        """See `Guard`."""
        ...
