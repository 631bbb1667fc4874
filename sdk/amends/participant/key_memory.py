"""Remembers which request came with which key: another request under a key, and a copy of a call that is still being
carried out, must not run.

It is the process's own memory: a restart empties it, and the oldest keys fall out. It keeps two calls of one key from
running side by side here and catches keys that are used twice by mistake; that the work of a key is done once is still
the handler's part.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from amends.participant.context import StepContext

REMEMBERED_KEYS = 10_000
"""How many keys are remembered of calls that have ended; about 3 MB."""


class KeyInUseError(Exception):
    """This call must not run now: its key came with another request, or a copy of it is running."""


class KeyMemory:
    """The keys of one server, all on one event loop.

    Args:
        limit: how many keys are remembered of calls that have ended; those that run are always known.
    """

    def __init__(self, limit: int = REMEMBERED_KEYS) -> None:
        self._limit = limit
        self._running: dict[tuple[str, str], int] = {}
        self._ended: OrderedDict[tuple[str, str], int] = OrderedDict()

    def begin(self, step: StepContext, method: str, request: bytes) -> None:
        """Note that a call is carried out, until `end`.

        Args:
            step: the call's step; its key is unique within its ledger.
            method: "package.Service/Method".
            request: the request as it came. A coordinator sends the same bytes with every attempt.

        Raises:
            KeyInUseError: it must not be carried out; the text says why. Then there is nothing to `end`.
        """
        key = (step.ledger, step.key)
        # 64 bits with a secret of this process: nobody meets another request with the same number by chance.
        fingerprint = hash((method, request))
        running = self._running.get(key)
        known = self._ended.get(key) if running is None else running
        if known is not None and known != fingerprint:
            raise KeyInUseError(
                f"key {step.key} of ledger {step.ledger!r} came with another request before, and this one was not "
                "carried out: a key stands for one request; if that ledger was made anew, give sagas new ids or "
                "restart this participant"
            )
        if running is not None:
            raise KeyInUseError(
                f"a copy of this call is running (key {step.key} of ledger {step.ledger!r}), and this one was not "
                "carried out: ask again when it has ended"
            )
        self._running[key] = fingerprint

    def end(self, step: StepContext) -> None:
        """Note that the call has ended, however it did."""
        key = (step.ledger, step.key)
        self._ended[key] = self._running.pop(key)
        self._ended.move_to_end(key)
        if len(self._ended) > self._limit:
            self._ended.popitem(last=False)
