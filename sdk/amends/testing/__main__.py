"""`python -m amends.testing`: runs fault matrices, see `amends.testing.runner`."""

from __future__ import annotations

import sys

from amends.testing.runner import main

if __name__ == "__main__":
    sys.exit(main())
