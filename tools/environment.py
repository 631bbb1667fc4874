"""Makes a virtual environment inside the checkout from a lock file with hashes.

Runs on the system's Python before anything is installed, so it uses the standard library only. A file lock lets
two `make` of one checkout start at once: the second waits and then finds the work done.
"""

import argparse
import fcntl
import hashlib
import importlib.util
import subprocess
import sys
import venv
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent


def main() -> int:
    """Read the command line and make the environment; 0 if it stands."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", help="where the environment goes, for example .venv")
    parser.add_argument("--lock", required=True, help="requirements file with hashes")
    parser.add_argument("--project", action="store_true", help="also install the project itself, editable")
    options = parser.parse_args()
    folder = CHECKOUT / options.folder
    folder.mkdir(exist_ok=True)
    with (folder / ".lock").open("w") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        return make(folder, CHECKOUT / options.lock, project=options.project)


def make(folder: Path, lock: Path, *, project: bool) -> int:
    """Create the environment if needed, install what changed, and leave the stamp that make looks at."""
    stamp = folder / ".ready"
    wanted = fingerprint(lock, project=project)
    if stamp.exists() and stamp.read_text() == wanted:
        stamp.touch()
        return 0
    first = "" if stamp.exists() else ", once; this takes a minute or two"
    print(f"{folder.name}: installing from {lock.relative_to(CHECKOUT)}{first}", flush=True)
    python = folder / "bin" / "python"
    if importlib.util.find_spec("ensurepip") is None:
        sys.stderr.write(f"{sys.executable} can't make environments (no ensurepip): install its venv package\n")
        return 1
    if not (folder / "bin" / "pip").exists():
        venv.EnvBuilder(with_pip=True, symlinks=True).create(folder)
    pip = [str(python), "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
    steps = [[*pip, "--require-hashes", "--requirement", str(lock)]]
    if project:
        steps.append([*pip, "--no-deps", "--no-build-isolation", "--editable", str(CHECKOUT)])
    for step in steps:
        code = subprocess.run(step, check=False, stdin=subprocess.DEVNULL).returncode
        if code:
            sys.stderr.write(f"{folder.name}: pip failed, see above; once that is repaired, run the same make again\n")
            return code
    stamp.write_text(wanted)
    return 0


def fingerprint(lock: Path, *, project: bool) -> str:
    """What the environment was made from: a changed time stamp alone must not install anything again."""
    parts = [lock.read_bytes()]
    if project:
        parts.append((CHECKOUT / "pyproject.toml").read_bytes())
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


if __name__ == "__main__":
    sys.exit(main())
