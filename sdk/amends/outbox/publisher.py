"""The port behind which a message broker stands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from amends.outbox.event import Event


class Publisher(Protocol):
    """Hands events to a broker. `tests/conformance/outbox/publishers` says the same in tests, for every adapter.

    The relay calls it on its own event loop, for many keys at once, for one key only after the event before was taken.
    """

    async def publish(self, event: Event) -> None:
        """Return once the broker has the event durably, so that it may be forgotten here.

        May be called again with an event that was published before: after a crash, after a timeout, after an answer
        that was lost. A broker that can throw away what it knows is to do so by `event.event_id`. May be cancelled at
        any time, which says nothing about what the broker has.

        Raises:
            PublisherUnavailableError: the broker can't be reached; other events would fare no better.
            Exception: the event wasn't taken, or it isn't known whether it was. It is published again, and no later
                event of its key before it. `PublishError` is the one to raise where there is more to say.
        """
        ...
