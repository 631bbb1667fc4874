"""The ports through which servicers start sagas, wait for them and have people's verbs carried out; the engine
implements them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from amends_coordinator.core.definition import StoredDefinition
from amends_coordinator.core.ids import SagaId
from amends_coordinator.core.saga import NO_LABELS
from amends_coordinator.core.values import quick

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from amends_coordinator.core.ids import DeadLetterId
    from amends_coordinator.core.states import Resolution
    from amends_coordinator.ports.ledger import Started, StoredSaga


class StoppingError(Exception):
    """This coordinator is stopping and takes no new work. Try again elsewhere, or after its restart."""


class UnknownSagaError(Exception):
    """There is no saga with this id. Check it, and the coordinator's address."""


class TooManyWatchersError(Exception):
    """As many watch sagas at this node as may. Try again later, or ask for a higher limit."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"{limit} streams watch sagas here already, which is the limit (AMENDS_MAX_WATCHERS)")


class SagaBusyError(Exception):
    """The saga was written again and again while a verb was decided on it; nothing was changed. Try again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """Who asks for something to be done to a saga, and why.

    `actor` is who it is, as authenticated; `claimed_actor` who the request says it is ("": it doesn't), which proves
    nothing; `reason` is in their words.
    """

    actor: str
    claimed_actor: str
    reason: str

    @property
    def name(self) -> str:
        """The name to keep with what they found."""
        return self.claimed_actor or self.actor


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class StartRequest:
    """A saga to start, checked already: `input` is canonical (parsed as the definition's input type and serialised
    deterministically). `saga_id` None: make a new one.
    """

    saga_id: SagaId | None
    definition: StoredDefinition
    input: bytes
    labels: Mapping[str, str] = field(default_factory=lambda: NO_LABELS)
    traceparent: str = ""
    tracestate: str = ""


class Driving(Protocol):
    """Starts sagas and waits for them. May raise what the ledger raises."""

    async def start(self, request: StartRequest) -> Started:
        """Start a saga; answers once it is durable (S11). An id that exists answers the saga that exists, whatever its
        definition and input: comparing them is the caller's part. Cancelling it only ends the wait for the answer: what
        is begun is carried through.

        Raises:
            StoppingError: no new work is taken.
        """
        ...

    async def wait(self, saga_id: SagaId, *, timeout_s: float) -> StoredSaga | None:
        """The saga once it is committed, compensated, or can't go on without a person (`COMPENSATION_FAILED`); or as it
        is after `timeout_s` seconds. None: there is no such saga.
        """
        ...

    def watch(self, saga_id: SagaId, *, known_version: int) -> AsyncGenerator[StoredSaga]:
        """The saga as it is, unless that is the version known already, then as it is after each change; changes that
        follow each other closely, or that come while the last one isn't taken yet, come as one. Ends after the saga has
        ended and nothing is left to do. To be closed by whoever asked for it. An outage of the ledger holds it up only.

        Raises:
            UnknownSagaError: there is no such saga.
            TooManyWatchersError: as many watch as may.
            StoppingError: the node stops, or is stopping.
        """
        ...


class Operating(Protocol):
    """Carries out what people ask of sagas. May raise what the ledger raises.

    Every method writes who did it and why in the transaction that does it, and answers the saga as it was written. A
    refusal (`VerbRefusedError`) and a `SagaBusyError` changed nothing, unless said otherwise.
    """

    async def abort(self, saga_id: SagaId, person: Person) -> StoredSaga | None:
        """Ask a saga to roll back. Repeating it repeats the answer (S10). None: there is no such saga.

        Raises:
            VerbRefusedError: it is past its point of no return.
        """
        ...

    async def retry(self, letter_id: DeadLetterId, person: Person, *, forced: bool) -> StoredSaga:
        """Give what is parked a fresh budget and close its dead letter. `forced`: also where the participant may have
        forgotten the key.

        Raises:
            VerbRefusedError, SagaBusyError.
        """
        ...

    async def resolve(
        self, letter_id: DeadLetterId, person: Person, *, resolution: Resolution, response: bytes | None
    ) -> StoredSaga:
        """Settle what is parked by what a person found. Where the participant can settle it, it is asked first: that
        may take as long as its lookup, and what it says stands.

        Args:
            letter_id: the dead letter.
            person: who found it.
            resolution: what was found.
            response: the action's serialised response, where it happened and something reads it.

        Raises:
            VerbRefusedError: among others, the participant says that the action happened and the person that it didn't;
                then the saga goes on from the participant's answer.
            SagaBusyError.
        """
        ...

    async def run_now(self, saga_id: SagaId, person: Person) -> StoredSaga | None:
        """Have tried now whatever waits for its time. None: there is no such saga.

        Raises:
            VerbRefusedError, SagaBusyError.
        """
        ...

    async def terminate(self, saga_id: SagaId, person: Person) -> StoredSaga | None:
        """Stop a saga where it is. None: there is no such saga.

        Raises:
            VerbRefusedError, SagaBusyError.
        """
        ...
