"""What can go wrong with setting up and running a participant. Refusals of a step are in `refusals`."""

from __future__ import annotations

from amends.errors import AmendsError


class InvalidParticipantError(AmendsError):
    """The participant can't be served as it is written. The text says which line to change; nothing was started."""


class CannotListenError(AmendsError):
    """The address can't be listened on, most often because another process does. Choose another port, or 0."""


class NotStartedError(AmendsError):
    """Asked for something that only a started participant has. Await `start()` first, or use `async with`."""


class DescriptorConflictError(AmendsError):
    """Another participant announces the same type or file with other content; see the text for which one.

    Nothing reaches this participant until that is settled: rename the package of one of them, or give both one file.
    """
