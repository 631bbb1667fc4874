"""Remembers which request came with which key: another request under a key must not run, and a copy of a call that is
still being carried out waits for its end. So does a compensation or a lookup for the action that it is about.

It is the process's own memory: a restart empties it, and the oldest keys fall out. It keeps two calls of one key from
running side by side here and catches keys that are used twice by mistake; that the work of a key is done once is still
the handler's part. With a barrier, a copy that has waited is answered from what the first one wrote down.
"""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from amends.participant.context import StepContext

REMEMBERED_KEYS = 10_000
"""How many keys are remembered of calls that have ended; about 3 MB."""

LedgerKey: TypeAlias = tuple[str, str]


class KeyInUseError(Exception):
    """This call must not run now: its key came with another request, or a copy of it is running."""


@dataclass(frozen=True, slots=True)
class _Running:
    """A call that is carried out: the number of its request, and who waits for its end."""

    fingerprint: int
    waiting: list[Future[None]] = field(default_factory=list["Future[None]"])


class KeyMemory:
    """The keys of one server; for calls on an event loop and in threads.

    Args:
        limit: how many keys are remembered of calls that have ended; those that run are always known.
    """

    def __init__(self, limit: int = REMEMBERED_KEYS) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._running: dict[LedgerKey, _Running] = {}
        self._ended: OrderedDict[LedgerKey, int] = OrderedDict()

    async def begin(self, step: StepContext, method: str, request: bytes) -> None:
        """Note that a call is carried out, until `end`. Waits for a call that is in its way, up to the own deadline.

        Args:
            step: the call's step; its key is unique within its ledger.
            method: "package.Service/Method".
            request: the request as it came. A coordinator sends the same bytes with every attempt.

        Raises:
            KeyInUseError: it must not be carried out; the text says why. Then there is nothing to `end`.
        """
        while (ended := self._begin(step, method, request)) is not None:
            try:
                async with asyncio.timeout(step.time_remaining()):
                    await asyncio.wrap_future(ended)
            except TimeoutError:
                raise _still_running(step) from None

    def begin_in_thread(self, step: StepContext, method: str, request: bytes) -> None:
        """The same for a call that has a thread of its own, which waits."""
        while (ended := self._begin(step, method, request)) is not None:
            try:
                ended.result(step.time_remaining())
            except TimeoutError:
                raise _still_running(step) from None

    def end(self, step: StepContext) -> None:
        """Note that the call has ended, however it did.

        Which request owns the key of a call with a guard is written down; what came here first need not be the one.
        """
        key = (step.ledger, step.key)
        with self._lock:
            running = self._running.pop(key)
            if step.state.guard is None:
                self._remember(key, running.fingerprint)
        for waiting in running.waiting:
            if waiting.set_running_or_notify_cancel():
                waiting.set_result(None)

    def _remember(self, key: LedgerKey, fingerprint: int) -> None:
        self._ended[key] = fingerprint
        self._ended.move_to_end(key)
        if len(self._ended) > self._limit:
            self._ended.popitem(last=False)

    def _begin(self, step: StepContext, method: str, request: bytes) -> Future[None] | None:
        """Begin, or what is done when the call that is in the way has ended."""
        key = (step.ledger, step.key)
        # 64 bits with a secret of this process: nobody meets another request with the same number by chance.
        fingerprint = hash((method, request))
        with self._lock:
            running = self._running.get(key)
            known = self._ended.get(key) if running is None else running.fingerprint
            if known is not None and known != fingerprint:
                raise KeyInUseError(
                    f"key {step.key} of ledger {step.ledger!r} came with another request before, and this one was not "
                    "carried out: a key stands for one request; if that ledger was made anew, give sagas new ids or "
                    "restart this participant"
                )
            if running is None and step.action_key is not None:
                running = self._running.get((step.ledger, step.action_key))
            if running is None:
                self._running[key] = _Running(fingerprint)
                return None
            ended: Future[None] = Future()
            running.waiting.append(ended)
            return ended


def _still_running(step: StepContext) -> KeyInUseError:
    return KeyInUseError(
        f"a copy of this call, or the action that it is about, is running (key {step.key} of ledger {step.ledger!r}), "
        "and this one was not carried out: ask again when it has ended"
    )
