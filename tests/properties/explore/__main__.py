"""`python -m tests.properties.explore`: see run.py, which worker processes can import by its name."""

from __future__ import annotations

import sys

from tests.properties.explore.run import main

if __name__ == "__main__":
    sys.exit(main())
