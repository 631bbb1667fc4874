"""The port through which servicers start sagas and look at them; the engine implements it."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

from amends_coordinator.core.definition import StoredDefinition
from amends_coordinator.core.ids import SagaId

if TYPE_CHECKING:
    from collections.abc import Mapping

    from amends_coordinator.ports.ledger import Started, StoredSaga


class StoppingError(Exception):
    """This coordinator is stopping and takes no new work. Try again elsewhere, or after its restart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRequest:
    """A saga to start, checked already: `input` is canonical (parsed as the definition's input type and serialised
    deterministically). `saga_id` None: make a new one.
    """

    saga_id: SagaId | None
    definition: StoredDefinition
    input: bytes
    labels: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    traceparent: str = ""
    tracestate: str = ""


class Driving(Protocol):
    """Starts sagas and waits for them. May raise what the ledger raises."""

    async def start(self, request: StartRequest) -> Started:
        """Start a saga; answers once it is durable (S11). An id that exists answers the saga that exists, whatever its
        definition and input: comparing them is the caller's part.

        Raises:
            StoppingError: no new work is taken.
        """
        ...

    async def wait(self, saga_id: SagaId, *, timeout_s: float) -> StoredSaga | None:
        """The saga once it is committed, compensated, or can't go on without a person (`COMPENSATION_FAILED`); or as it
        is after `timeout_s` seconds. None: there is no such saga.
        """
        ...
