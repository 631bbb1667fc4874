"""`python -m amends.cli`: the command line where no script of it is on the path."""

from __future__ import annotations

import sys

from amends.cli import main

sys.exit(main())
