"""Tells the relays of this process that something was published, so that they need not wait for their next look."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_listeners: dict[object, Callable[[], None]] = {}


def listen(listener: object, wake: Callable[[], None]) -> None:
    """Call `wake` after every commit with events in it, from whatever thread, until `forget(listener)`."""
    _listeners[listener] = wake


def forget(listener: object) -> None:
    """Call its `wake` no more."""
    _listeners.pop(listener, None)


def published() -> None:
    """Events were committed."""
    for wake in tuple(_listeners.values()):
        wake()
