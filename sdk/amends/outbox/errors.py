"""What can go wrong with an outbox: used where it can't be, and events that a broker doesn't take."""

from __future__ import annotations

from amends.errors import AmendsError


class OutboxUseError(AmendsError):
    """The outbox was used where or how it can't be. What to do: change the line that is named; nothing was written."""


class PublishError(AmendsError):
    """The broker did not take an event. Raised by publishers; the relay tries that key again, later and later.

    What to do: read the text, and repair what it names; the event stays in the outbox until it is delivered.
    """


class PublisherUnavailableError(PublishError):
    """The broker can't be reached at all, whichever event it is. Raised by publishers.

    The relay holds everything back and tries again soon; no event is counted as refused. What to do: see to the broker.
    """
