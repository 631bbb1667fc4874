"""The port to the directory of participants: who serves a method just now, and where."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from amends_coordinator.ports.ledger import InstanceRow


class Directory(Protocol):
    """Tells where a call can go. Answers from memory: it never blocks and never raises."""

    def serving(self, service: str) -> Sequence[str]:
        """The participants with an instance that serves `service` (a full name) and whose lease hasn't ended, by name,
        each once; empty if there is none.
        """
        ...

    def may_serve(self, participant: str, service: str) -> bool:
        """Whether a participant serves `service` (a full name), by what its processes say, or by what the last one
        said while it is away. True if nothing is known of it, because it was taken out: nobody can tell.
        """
        ...

    def instances(self, *, service: str, participant: str) -> Sequence[InstanceRow]:
        """The instances whose lease hasn't ended and that serve `service` (a full name); only those of `participant`
        unless that is "". In a stable order; empty if there is none.
        """
        ...
