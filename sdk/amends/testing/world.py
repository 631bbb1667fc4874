"""What an author gives a fault matrix: the world in which a saga runs, and what must be true of it in the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from enum import StrEnum
from typing import Any, Protocol, TypeAlias

from amends.results import Committed, Compensated, CompensationFailed

End: TypeAlias = Committed[Any] | Compensated | CompensationFailed
"""How a saga ended. `Any`: the output is of the saga's own type, which a world's author knows."""


class World(Protocol):
    """The participants of a saga, and what must be true of them in the end."""

    def participants(self) -> Mapping[str, Sequence[object]]:
        """The servicers of each participant, by its name, as its process makes them when it starts.

        Called again when a process is played to die and starts anew: what a servicer had in memory must be gone then,
        and what is in a database must be there.
        """
        ...

    async def check(self, end: End) -> None:
        """Raise (an assertion, for example) if the world is not as it must be after a saga that ended so.

        Called once, when nothing happens any more. It may look, but not touch.
        """
        ...


WorldMaker: TypeAlias = Callable[[], AbstractAsyncContextManager[World]]
"""Makes the world of one case. It is entered on the event loop on which the case is played."""


class Trait(StrEnum):
    """What an author may forbid of an end, beside what is never allowed."""

    UNPROVEN = "unproven"
    """It rests on an assumption that no participant has proven."""
    PARKED = "parked"
    """A person had to retry or settle something."""
