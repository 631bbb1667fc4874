"""`python -m amends_coordinator`: runs one coordinator with the settings of the environment."""

from __future__ import annotations

import sys

from amends_coordinator.bootstrap import main

if __name__ == "__main__":
    sys.exit(main())
