"""The entrance of the command line `amends`: loads it, or says in one sentence what is missing."""

from __future__ import annotations

import signal
import sys

EXTRA_MODULES = {"rich", "typer"}


def main() -> int:
    """Run the command that the process was started with; the exit code."""
    # Ctrl-C while the command is still loading ends it without a traceback.
    interrupted = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        from amends.cli.app import run
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in EXTRA_MODULES:
            raise
        sys.stderr.write("the command line needs its extra: pip install 'amends[cli]'\n")
        return 1
    finally:
        signal.signal(signal.SIGINT, interrupted)
    return run()
