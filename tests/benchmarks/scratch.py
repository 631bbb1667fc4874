"""Where benchmarks write."""

from __future__ import annotations

from pathlib import Path


def scratch() -> Path:
    """A folder inside the checkout, so that clones on one machine share nothing."""
    folder = Path(__file__).resolve().parents[2] / ".bench"
    folder.mkdir(exist_ok=True)
    return folder
