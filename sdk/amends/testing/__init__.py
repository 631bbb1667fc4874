"""Rehearsing sagas with the author's own services: a coordinator in the same process, on virtual time, with faults.

Needs `amends[coordinator]`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

    from amends.testing.cases import FaultCase
    from amends.testing.journal import (
        Called,
        CoordinatorFailed,
        CoordinatorKilled,
        CoordinatorStarted,
        Delivered,
        Died,
        Entry,
        Happening,
        Heard,
        Noted,
        Replied,
        Written,
    )
    from amends.testing.matrix import FaultMatrix, MatrixCase
    from amends.testing.rehearsal import Orphans, Rehearsal
    from amends.testing.report import FaultMatrixFailure, Result
    from amends.testing.seam import CallSite, Change, Fault, NoFault, WriteSite
    from amends.testing.standing import CoordinatorFailedError, StandsStillError
    from amends.testing.stuck import StuckError, WrongLoopError
    from amends.testing.virtual_time import VirtualLoop, held, run
    from amends.testing.world import End, Trait, World
    from amends_coordinator.bootstrap import Answer, Outcome

__all__ = [
    "Answer",
    "CallSite",
    "Called",
    "Change",
    "CoordinatorFailed",
    "CoordinatorFailedError",
    "CoordinatorKilled",
    "CoordinatorStarted",
    "Delivered",
    "Died",
    "End",
    "Entry",
    "Fault",
    "FaultCase",
    "FaultMatrix",
    "FaultMatrixFailure",
    "Happening",
    "Heard",
    "MatrixCase",
    "NoFault",
    "Noted",
    "Orphans",
    "Outcome",
    "Rehearsal",
    "Replied",
    "Result",
    "StandsStillError",
    "StuckError",
    "Trait",
    "VirtualLoop",
    "World",
    "WriteSite",
    "Written",
    "WrongLoopError",
    "held",
    "run",
]

HOMES = (
    "amends.testing.virtual_time",
    "amends.testing.seam",
    "amends.testing.journal",
    "amends.testing.world",
    "amends.testing.report",
    "amends.testing.rehearsal",
    "amends.testing.cases",
    "amends.testing.matrix",
    "amends_coordinator.bootstrap",
)
"""The modules that the names come from, those that need little first: a pytest plugin lives here, too, and a run that
rehearses nothing must not load a coordinator.
"""

OWN_PACKAGES = frozenset({"amends", "amends_coordinator"})


def _loaded(home: str) -> ModuleType:
    """One of these modules; says in one sentence that what it needs is not installed."""
    try:
        return import_module(home)
    except ModuleNotFoundError as error:
        missing = (error.name or "").split(".")[0]
        if missing in OWN_PACKAGES:
            raise
        raise ModuleNotFoundError(
            "amends.testing runs a coordinator, which needs its extra "
            f"(no module {missing}): pip install 'amends[coordinator]'",
            name=error.name,
        ) from error


# Hidden from type checkers, which would take every misspelt name for one that this function answers.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """The value of one of the names above, asked for the first time."""
        if name in __all__:
            for home in HOMES:
                module = _loaded(home)
                if name in vars(module):
                    globals()[name] = found = vars(module)[name]
                    return found
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name, obj=import_module(__name__))

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
