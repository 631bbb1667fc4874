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
from collections.abc import Hashable
from concurrent.futures import Future
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from amends.participant.context import StepContext

REMEMBERED_KEYS = 10_000
"""How many keys are remembered of calls that have ended; about 1.5 MB."""


class KeyInUseError(Exception):
    """This call must not run now: its key came with another request, or a copy of it is running."""


class KeyMemory:
    """The keys of one server; for calls on an event loop and in threads.

    Args:
        limit: how many keys are remembered of calls that have ended; those that run are always known.
    """

    def __init__(self, limit: int = REMEMBERED_KEYS) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._running: dict[Hashable, int] = {}
        self._waiting: dict[Hashable, list[Future[None]]] = {}
        self._ended: OrderedDict[Hashable, int] = OrderedDict()

    def begin(self, step: StepContext, method: str, request: bytes) -> Future[None] | None:
        """Note that a call is carried out, until `end`; or, where another call is in its way, what is done when that
        one has ended: wait for it (`wait_on_loop`, `wait_in_thread`) and begin again.

        Args:
            step: the call's step; its key is unique within its ledger.
            method: "package.Service/Method".
            request: the request as it came. A coordinator sends the same bytes with every attempt.

        Raises:
            KeyInUseError: it must not be carried out; the text says why. Then there is nothing to `end`.
        """
        key = step.ledger_key
        # As the key: numbers are kept instead of texts, since ten thousand of these would be cold memory at every call.
        fingerprint = hash((method, request))
        with self._lock:
            known = self._running.get(key)
            in_the_way = None if known is None else key
            if known is None:
                known = self._ended.get(key)
            if known is not None and known != fingerprint:
                raise KeyInUseError(
                    f"key {step.key} of ledger {step.ledger!r} came with another request before, and this one was not "
                    "carried out: a key stands for one request; if that ledger was made anew, give sagas new ids or "
                    "restart this participant"
                )
            if in_the_way is None and step.ledger_key_of_action in self._running:
                in_the_way = step.ledger_key_of_action
            if in_the_way is None:
                self._running[key] = fingerprint
                return None
            ended: Future[None] = Future()
            self._waiting.setdefault(in_the_way, []).append(ended)
            return ended

    def end(self, step: StepContext) -> None:
        """Note that the call has ended, however it did.

        Which request owns the key of a call with a guard is written down; what came here first need not be the one.
        """
        key = step.ledger_key
        with self._lock:
            fingerprint = self._running.pop(key)
            if step.state.guard is None:
                self._remember(key, fingerprint)
            ended = self._waiting.pop(key, ()) if self._waiting else ()
        for waiting in ended:
            if waiting.set_running_or_notify_cancel():
                waiting.set_result(None)

    def _remember(self, key: Hashable, fingerprint: int) -> None:
        self._ended[key] = fingerprint
        self._ended.move_to_end(key)
        if len(self._ended) > self._limit:
            self._ended.popitem(last=False)


async def wait_on_loop(other: Future[None], step: StepContext) -> None:
    """Wait for a call that is in this one's way, up to the own deadline.

    Raises:
        KeyInUseError: it has not ended.
    """
    try:
        async with asyncio.timeout(step.time_remaining()):
            await asyncio.wrap_future(other)
    except TimeoutError:
        raise _still_running(step) from None


def wait_in_thread(other: Future[None], step: StepContext) -> None:
    """The same for a call that has a thread of its own, which waits."""
    try:
        other.result(step.time_remaining())
    except TimeoutError:
        raise _still_running(step) from None


def _still_running(step: StepContext) -> KeyInUseError:
    return KeyInUseError(
        f"a copy of this call, or the action that it is about, is running (key {step.key} of ledger {step.ledger!r}), "
        "and this one was not carried out: ask again when it has ended"
    )
