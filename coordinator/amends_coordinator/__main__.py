"""`python -m amends_coordinator`: runs one coordinator with the settings of the environment."""

from __future__ import annotations

import signal
import sys


def start() -> int:
    """Run one coordinator; the exit code. Ctrl-C ends the process while it is still loading, too, without a word."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from amends_coordinator.bootstrap import main

    return main()


if __name__ == "__main__":
    sys.exit(start())
