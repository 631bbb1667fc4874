"""Runs fault matrices without pytest, or one case of them again.

    python -m amends.testing tests.faults.shop_world:ORDER tests.faults.bank_world:TRANSFER
    python -m amends.testing tests.faults.shop_world:ORDER --case order/reserve/action/reply-lost --seed 7

Shows how far it is, tells of every case that went wrong, and ends with one line of counts. The exit code is 0 if every
world was consistent, 1 if one was not, 2 if there was nothing to run.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import shlex
import sys
import time
import traceback
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from amends.testing.matrix import AnyMatrix, is_matrix

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

SHOW_EVERY = 25


@dataclass(frozen=True, slots=True)
class Job:
    """One case to play: the matrix as "module:name", the case's name, the seed."""

    place: str
    case: str
    seed: int

    @property
    def command(self) -> str:
        """What plays it again."""
        return f"python -m amends.testing {self.place} --case {shlex.quote(self.case)} --seed {self.seed}"


@dataclass(frozen=True, slots=True)
class Played:
    """How a job went, as it travels between processes."""

    consistent: bool
    met: bool
    text: str


def main(arguments: Sequence[str] | None = None) -> int:
    """Reads the command line, runs, and says how it went."""
    chosen = _parser().parse_args(arguments)
    sys.path.insert(0, os.getcwd())  # noqa: PTH109 - as `python -m pytest` does
    try:
        jobs = [Job(place, name, chosen.seed) for place in chosen.matrix for name in _names(load(place), chosen.case)]
    except (ImportError, LookupError, TypeError) as error:
        sys.stderr.write(f"fault_matrix: {error}\n")
        return 2
    begin_s = time.monotonic()
    results = list(_shown(_played(jobs, chosen.workers), len(jobs)))
    consistent = sum(result.consistent for result in results)
    unmet = [job.case for job, result in zip(jobs, results, strict=True) if result.consistent and not result.met]
    if unmet:
        _say(f"{len(unmet)} not judged, because what goes wrong there never could: {', '.join(unmet)}")
    judged, good = len(results) - len(unmet), consistent - len(unmet)
    _say(f"played with seed {chosen.seed} in {time.monotonic() - begin_s:.0f} s")
    _say(f"fault_matrix: sagas={len(chosen.matrix)} cases={judged} consistent={good}")
    return 0 if judged == good else 1


def load(place: str) -> AnyMatrix:
    """The matrix at "module:name".

    Raises:
        ImportError, TypeError: there is none; the text says what is right.
    """
    module, _, name = place.partition(":")
    found: object = getattr(import_module(module), name, None) if name else None
    if not is_matrix(found):
        raise TypeError(f"{place} is no fault matrix: write MODULE:NAME, as in tests.faults.shop_world:ORDER")
    return found


def play(job: Job) -> Played:
    """Plays one case, in a process of its own if need be."""
    logging.getLogger().addHandler(logging.NullHandler())  # faults are meant here: nobody needs to be warned of them
    try:
        result = load(job.place).run(job.case, seed=job.seed)
    except Exception:  # noqa: BLE001 - a world that can't be made, for example: told, and the other cases are played
        return Played(consistent=False, met=True, text=f"{job.case} could not be played\n{traceback.format_exc()}")
    text = "" if result.consistent else result.told(replay=job.command)
    return Played(consistent=result.consistent, met=result.met, text=text)


def _names(matrix: AnyMatrix, wanted: Sequence[str]) -> Iterable[str]:
    return [matrix.case(name).name for name in wanted] or [case.name for case in matrix.cases()]


def _played(jobs: Sequence[Job], workers: int) -> Iterator[Played]:
    if workers < 2 or len(jobs) < 2:
        yield from map(play, jobs)
        return
    # Fresh processes, because gRPC does not survive a fork.
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(play, jobs, chunksize=4)


def _shown(results: Iterable[Played], count: int) -> Iterator[Played]:
    wrong = 0
    for number, result in enumerate(results, 1):
        if not result.consistent:
            wrong += 1
            _say(f"{result.text}\n")
        if number % SHOW_EVERY == 0 and number < count:
            _say(f"{number} of {count} cases, {wrong} inconsistent")
        yield result


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m amends.testing", description="Runs fault matrices.")
    parser.add_argument("matrix", nargs="+", metavar="MODULE:NAME", help="where a FaultMatrix is")
    parser.add_argument("--case", action="append", default=[], metavar="NAME", help="only this case; may be repeated")
    parser.add_argument("--seed", type=int, default=0, help="seed of ids and chance (default: 0)")
    parser.add_argument("--workers", type=int, default=1, help="processes at once (default: 1)")
    return parser
