"""`make explore`: explores every small saga completely, several at once, then walks through mixed ones; fails with the
story of a violation.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import sys
import time
from functools import partial

from tests.properties.explore.explorer import Findings, explore
from tests.properties.explore.shapes import Small
from tests.properties.explore.small_sagas import EVERYTHING
from tests.properties.explore.walks import walked

MIB = 1024
WALKS = 60
"""Through each mixed saga."""


def main() -> int:
    """Explore everything; 0 if no promise was broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="how many at once (default: cores)")
    parser.add_argument("--only", default="", help="only small sagas whose description contains this text")
    parser.add_argument("--most-states", type=int, default=4_000_000, help="of one small saga; more are a violation")
    parser.add_argument("--mixed", type=int, default=100, help="how many mixed sagas (default: 100; none with --only)")
    arguments = parser.parse_args()
    explored = partial(_explored, most_states=arguments.most_states)
    chosen: list[Small | int] = [small for small in EVERYTHING if arguments.only in str(small)]
    chosen += [] if arguments.only else range(arguments.mixed)
    states = violations = 0
    begin = time.monotonic()
    with multiprocessing.get_context("spawn").Pool(arguments.processes, maxtasksperchild=8) as pool:
        for done, (small, findings, peak_mib) in enumerate(pool.imap_unordered(explored, chosen), start=1):
            states += findings.states
            violations += len(findings.broken)
            took = time.monotonic() - begin
            say(
                f"{done}/{len(chosen)} {took:.0f}s {small}: states={findings.states} sagas={findings.sagas}"
                f" decisions={findings.decisions} peak_mib={peak_mib}"
            )
            for story in findings.broken:
                say(f"VIOLATION in {small}\n{story}\n")
    say(f"explore: states={states} violations={violations}")
    return 1 if violations or not chosen else 0


def say(line: str) -> None:
    """Write a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _explored(chosen: Small | int, *, most_states: int) -> tuple[str, Findings, int]:
    """Explore a small saga, or walk through the mixed one of a seed: which it was, what was seen, and the memory."""
    if isinstance(chosen, int):
        small, findings = walked(chosen, walks=WALKS)
        told = f"mixed {chosen}: {small}"
    else:
        findings, told = explore(chosen, most_states=most_states), str(chosen)
    return told, findings, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // MIB
