"""Makes the static participants of the participants' file known at the start, and goes on trying where that fails.

A participant that is down, or whose certificate isn't there yet, must not keep a coordinator from starting: its sagas
wait, those of others don't.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import structlog

from amends_coordinator.definitions.errors import DescriptorError
from amends_coordinator.engine.registry_errors import RegistryError
from amends_coordinator.ports.describing import NotDescribedError
from amends_coordinator.ports.ledger import LedgerUnavailableError
from amends_coordinator.telemetry import names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from amends_coordinator.engine.registry import Registry
    from amends_coordinator.engine.static_participants import StaticParticipants, StaticRequest

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0

_log: Any = structlog.get_logger(
    "amends.participants"
)  # structlog's loggers are proxies that it declares as Any itself
_EXPECTED = (RegistryError, NotDescribedError, DescriptorError, LedgerUnavailableError)


class DeclaredParticipants:
    """Static participants that are to be known: `put_known` before the first call, then `run` beside the server."""

    def __init__(self, requests: Sequence[StaticRequest], *, statics: StaticParticipants, registry: Registry) -> None:
        self._left = {request.participant: request for request in requests}
        self._statics = statics
        self._registry = registry
        self._told: dict[str, str] = {}

    async def put_known(self) -> None:
        """Put what needs no answer from a target: those with descriptors, and those that the ledger has already, which
        are reached as the file says from now on.
        """
        for request in list(self._left.values()):
            known = self._registry.static(request.participant)
            if request.descriptors is not None:
                await self._put(request)
            elif known is not None:
                known_request = replace(request, descriptors=known.descriptors)
                await self._put(known_request, ends=False)

    async def run(self) -> None:
        """Put the others, however long that takes; returns once none is left."""
        pause_s = FIRST_PAUSE_S
        while self._left:
            await asyncio.gather(*(self._put(request) for request in list(self._left.values())))
            if self._left:
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    async def _put(self, request: StaticRequest, *, ends: bool = True) -> None:
        name = request.participant
        try:
            await self._statics.add(request)
        except _EXPECTED as error:
            self._tell(name, str(error))
        except Exception as error:  # noqa: BLE001 - one participant never stops the others; it is told and tried again
            self._tell(name, repr(error))
        else:
            if ends:
                del self._left[name]
            if self._told.pop(name, None) is not None:
                _log.warning(names.PARTICIPANT_ADDED, **{names.PARTICIPANT: name})

    def _tell(self, name: str, error: str) -> None:
        """Once for each thing that is wrong, however long it lasts."""
        if self._told.get(name) != error:
            self._told[name] = error
            _log.warning(names.PARTICIPANT_NOT_ADDED, **{names.PARTICIPANT: name, names.ERROR: error})
