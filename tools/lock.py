"""Resolves the dependencies anew and writes the lock files; `make lock` runs it in an environment that holds uv.

One resolution serves every supported Python on every platform (markers in the file). No index is named in it, so it
installs from whatever index the machine is set up for; the hashes say that it was the right file.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
COMMON = ("--universal", "--python-version", "3.11", "--generate-hashes", "--no-annotate", "--no-header", "--quiet")
NAMELESS = ("--no-emit-index-url", "--no-emit-find-links")

LOCKS = {
    "locks/dev.txt": ("pyproject.toml", "--all-extras", "--group", "dev", "--constraint", "locks/constraints.txt"),
    "locks/proto.txt": ("locks/proto.in",),
    "locks/lock.txt": ("locks/lock.in",),
}


def main() -> int:
    """Write every lock; further arguments go to uv, for example --upgrade."""
    uv = shutil.which("uv", path=str(Path(sys.executable).parent))
    if uv is None:
        sys.stderr.write("uv is missing in this environment: run 'make lock', it makes the right one\n")
        return 1
    for lock, sources in LOCKS.items():
        command = [uv, "pip", "compile", *COMMON, *NAMELESS, *sources, "--output-file", lock, *sys.argv[1:]]
        code = subprocess.run(command, cwd=CHECKOUT, check=False).returncode
        if code:
            return code
        print(f"lock: {lock}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
