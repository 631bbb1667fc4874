"""Where a real grpcurl comes from: AMENDS_GRPCURL, the PATH, or a build in the checkout, made on demand where Go is."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import CHECKOUT

NOT_TESTED = "what people see with grpcurl (docs/grpcurl.md) was not tested"
BUILT = CHECKOUT / ".tools" / "bin" / "grpcurl"
BUILD_BOUND_S = 500.0


def find_grpcurl(*, asked_for: bool) -> Path:
    """The program. Where there is none it is built if `asked_for` and Go is there; else the test is skipped."""
    named = os.environ.get("AMENDS_GRPCURL")
    if named:
        if shutil.which(named) is None:
            pytest.fail(f"AMENDS_GRPCURL is {named}, and that is no program; correct it or unset it")
        return Path(named).absolute()
    found = shutil.which("grpcurl")
    if found is not None:
        return Path(found)
    if asked_for and not BUILT.exists():
        _build()
    if not BUILT.exists():
        pytest.skip(
            f"{NOT_TESTED}: there is no grpcurl; `make grpcurl` builds one where Go is, AMENDS_GRPCURL names one"
        )
    return BUILT


def prints_as_the_page(grpcurl: Path) -> bool:
    """Whether it is one of 1.9: those before it lay out what is in an `Any` in another way."""
    said = subprocess.run([grpcurl, "-version"], check=True, capture_output=True, text=True)
    return re.search(r"\bv?1\.[0-8]\.", said.stdout + said.stderr) is None


def _build() -> None:
    """Build it as `make grpcurl` does; two test runs don't build at once."""
    if shutil.which("go") is None:
        pytest.skip(f"{NOT_TESTED}: there is neither grpcurl nor Go to build it")
    BUILT.parent.mkdir(parents=True, exist_ok=True)
    with (BUILT.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if BUILT.exists():
            return
        try:
            done = subprocess.run(
                ["make", "grpcurl"], cwd=CHECKOUT, timeout=BUILD_BOUND_S, check=False, capture_output=True, text=True
            )
        except subprocess.TimeoutExpired:
            pytest.skip(f"{NOT_TESTED}: it was not built within {BUILD_BOUND_S:.0f} s")
        if done.returncode:
            pytest.skip(f"{NOT_TESTED}: it could not be built ({done.stderr.strip().splitlines()[-1]})")
