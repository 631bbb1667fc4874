"""`make explore`: explores every small saga completely, several at once, and fails with the story of a violation."""

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

MIB = 1024


def main() -> int:
    """Explore everything; 0 if no promise was broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="how many at once (default: cores)")
    parser.add_argument("--only", default="", help="only small sagas whose description contains this text")
    parser.add_argument("--most-states", type=int, default=4_000_000, help="of one small saga; more are a violation")
    arguments = parser.parse_args()
    explored = partial(_explored, most_states=arguments.most_states)
    chosen = [small for small in EVERYTHING if arguments.only in str(small)]
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


def _explored(small: Small, *, most_states: int) -> tuple[Small, Findings, int]:
    findings = explore(small, most_states=most_states)
    return small, findings, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // MIB
