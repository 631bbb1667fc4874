"""Settings that every test shares: where temporary files go, and how Hypothesis behaves on a busy machine."""

from __future__ import annotations

import os
from pathlib import Path

from hypothesis import HealthCheck, settings

CHECKOUT = Path(__file__).resolve().parent.parent

# pytest's numbered temporary folders stay inside the checkout, so that clones on one machine don't share anything.
_temporary = CHECKOUT / ".pytest_tmp"
_temporary.mkdir(exist_ok=True)
os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_temporary))

# No deadline per example: a slow machine is not a wrong answer. A failure prints the blob that replays it.
settings.register_profile("amends", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("amends")
