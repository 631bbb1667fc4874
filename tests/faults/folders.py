"""A folder for the databases of one case, where there is one in memory: a case makes several, and throws them away."""

from __future__ import annotations

import tempfile
from pathlib import Path

_IN_MEMORY = Path("/dev/shm")


def new_folder() -> tempfile.TemporaryDirectory[str]:
    """A folder that is removed when its block is left."""
    return tempfile.TemporaryDirectory(prefix="amends-faults-", dir=_IN_MEMORY if _IN_MEMORY.is_dir() else None)
