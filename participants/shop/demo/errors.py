"""The one way in which the demo fails."""

from __future__ import annotations


class DemoFailedError(Exception):
    """The demo can't go on: the text says what was waited for or what broke, and where to look."""
