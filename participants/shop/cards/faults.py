"""Planted faults of the card provider: it holds a request or dies, before or after it has done what was asked.

Each is planted on the command line and happens once, to the first request that it fits. Whoever waits for a held one
asks for the list, and may let all of them go.
"""

from __future__ import annotations

import os
import re
import signal
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_FAULT = re.compile(
    r"(?P<what>\w+):(?P<field>\w+)=(?P<value>[^:]*):(?P<moment>before|after):"
    r"(?:(?P<die>die)|hold(?::(?P<seconds>\d+(?:\.\d+)?))?)"
)

SHAPE = "WHAT:FIELD=VALUE:before|after:die|hold[:SECONDS]"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlantedFault:
    """What happens to a request.

    Attributes:
        what: the kind of thing that it asks for, for example "authorizations".
        field: of the request, which has to have this `value`.
        moment: "before" anything is done for it, or "after", when the answer is the only thing that is missing.
        dies: the provider dies; otherwise the request is held.
        seconds: for how long it is held; None: until all are let go.
    """

    what: str
    field: str
    value: str
    moment: str
    dies: bool
    seconds: float | None = None

    @classmethod
    def parse(cls, text: str) -> PlantedFault:
        """Reads `WHAT:FIELD=VALUE:before|after:die|hold[:SECONDS]`.

        Raises:
            ValueError: the text has another shape.
        """
        found = _FAULT.fullmatch(text)
        if found is None:
            raise ValueError(
                f"{text!r} is no fault: write {SHAPE}, as in authorizations:customer_id=carol:after:hold:3"
            )
        seconds = found["seconds"]
        return cls(
            what=found["what"],
            field=found["field"],
            value=found["value"],
            moment=found["moment"],
            dies=found["die"] is not None,
            seconds=None if seconds is None else float(seconds),
        )

    def __str__(self) -> str:
        """Names the point, such as "authorizations:reference=order-1:after"."""
        return f"{self.what}:{self.field}={self.value}:{self.moment}"


@dataclass(slots=True)
class PlantedFaults:
    """The faults that are still to happen, and the requests that are held now; for all threads."""

    faults: list[PlantedFault]
    held: list[str] = field(default_factory=list[str])
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _let_go: threading.Event = field(default_factory=threading.Event)

    @classmethod
    def of(cls, faults: Iterable[PlantedFault]) -> PlantedFaults:
        """All of these."""
        return cls(list(faults))

    def happen(self, what: str, moment: str, fields: Mapping[str, object]) -> None:
        """Whatever is planted for this moment of this request."""
        fault = self._take(what, moment, fields)
        if fault is None:
            return
        if fault.dies:
            os.kill(os.getpid(), signal.SIGKILL)
        self.held.append(str(fault))
        self._let_go.wait(fault.seconds)
        self.held.remove(str(fault))

    def let_go(self) -> None:
        """Lets everything go on that is held, and holds nothing from now on."""
        self._let_go.set()

    def _take(self, what: str, moment: str, fields: Mapping[str, object]) -> PlantedFault | None:
        with self._lock:
            for fault in self.faults:
                if (fault.what, fault.moment) == (what, moment) and str(fields.get(fault.field)) == fault.value:
                    self.faults.remove(fault)
                    return fault
        return None
