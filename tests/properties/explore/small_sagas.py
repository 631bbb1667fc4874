"""Which small sagas are explored: all of them by `make explore`, a slice of them by every test run."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

from amends_coordinator.core.states import FailurePolicy, Guarantee
from tests.properties.explore.shapes import Small

KINDS_ALONE = ("C", "P", "R", "O")
REMEMBERING = (Guarantee.BARRIER, Guarantee.KEY)
PLAIN = Small(shape="", outages=False)


def _alone() -> list[Small]:
    """One step with every option, and with all that people can do."""
    found: list[Small] = []
    for shape, guarantee in product(KINDS_ALONE, Guarantee):
        desk = replace(PLAIN, shape=shape, guarantee=guarantee, desk=True)
        found += [
            replace(desk, outages=True, wiring=True, timeouts=False),
            replace(desk, terminate=True, bindings=True, driver_fails=True, aborts=False),
            replace(desk, rounds=2, refusals=2),
            replace(desk, lookup=False, soft_aborts=True, terminate=True),
            replace(desk, lookup=False, blind=True, park=True, apology=True, terminate=True),
            replace(desk, settle=True, outages=True),
            replace(desk, at_most_once=True, copies=True),
            replace(desk, already_done=True, soft_aborts=True),
        ]
        if guarantee is not Guarantee.BARRIER:  # which no step has that is looked up elsewhere
            found.append(replace(desk, elsewhere=True))
        if guarantee is not Guarantee.NONE:  # which remembers nothing that it could forget
            found += [
                replace(desk, window=True, timeouts=False, crashes=False),
                replace(desk, window=True, settle=True, aborts=False, timeouts=False),
                replace(desk, window=True, lookup=False, outages=True, late=True, aborts=False, timeouts=False),
            ]
    return found


def _chains() -> list[Small]:
    """Steps one after the other."""
    found: list[Small] = []
    for shape, guarantee, policy in product(("C-C", "C-P", "C-R", "P-R", "O-C", "C-O"), Guarantee, FailurePolicy):
        plain = replace(PLAIN, shape=shape, guarantee=guarantee, policy=policy)
        found += [
            replace(plain, timeouts=False),
            replace(plain, lookup=False, blind=True, desk=True, aborts=False),
            replace(plain, outages=True, timeouts=False, crashes=False, aborts=False),
            replace(plain, soft_aborts=True, apology=True, timeouts=False, crashes=False),
        ]
        if guarantee is not Guarantee.NONE:
            found += [
                replace(plain, desk=True, timeouts=False, crashes=False),
                replace(plain, lookup=False, desk=True, terminate=True, aborts=False, timeouts=False, crashes=False),
                replace(plain, rounds=2, refusals=2, timeouts=False, crashes=False),
                replace(plain, desk=True, resolves=False, terminate=True, aborts=False, timeouts=False, crashes=False),
            ]
    for shape, guarantee, policy in product(
        ("C-P-R", "C-C-P", "C-C-R"), (Guarantee.BARRIER, Guarantee.KEY), FailurePolicy
    ):
        plain = replace(PLAIN, shape=shape, guarantee=guarantee, policy=policy)
        found += [
            replace(plain, timeouts=False),
            replace(plain, lookup=False, blind=True),
            replace(plain, lookup=False, desk=True, terminate=True, crashes=False, timeouts=False, aborts=False),
        ]
    stopped = replace(PLAIN, shape="P-R-R", lookup=False, desk=True, terminate=True)
    for guarantee in REMEMBERING:
        found.append(replace(stopped, guarantee=guarantee, crashes=False, timeouts=False, aborts=False))
    return found


def _branches() -> list[Small]:
    """Steps side by side."""
    found: list[Small] = []
    for shape, guarantee, policy in product(("(C|C)", "(C|O)", "(R|R)"), Guarantee, FailurePolicy):
        plain = replace(PLAIN, shape=shape, guarantee=guarantee, policy=policy, timeouts=False)
        found += [replace(plain, lookup=False, blind=True, desk=True, crashes=False)]
        if guarantee is not Guarantee.NONE:
            found += [
                replace(plain, crashes=False),
                replace(plain, lookup=False, aborts=False),
                replace(plain, lookup=False, desk=True, crashes=False),
                replace(plain, lookup=False, desk=True, park=True, crashes=False, aborts=False),
                replace(plain, lookup=False, terminate=True, crashes=False, aborts=False),
            ]
    for shape, guarantee, policy in product(("(C|C)", "C-(C|O)", "(CC|C)"), REMEMBERING, FailurePolicy):
        plain = replace(PLAIN, shape=shape, guarantee=guarantee, policy=policy, timeouts=False, crashes=False)
        found.append(replace(plain, lookup=False, aborts=False, bindings=True))
    plain = replace(PLAIN, shape="(C|C)", guarantee=Guarantee.KEY, lookup=False, aborts=False, timeouts=False)
    found.append(replace(plain, window=True, rounds=2, blind=True))
    for shape, guarantee in product(("(C|O)", "(R|R)"), REMEMBERING):
        plain = replace(PLAIN, shape=shape, guarantee=guarantee, lookup=False, aborts=False)
        found.append(replace(plain, window=True, rounds=2, crashes=False, timeouts=False))
    for shape, guarantee, policy in product(("(C|C)-P", "C-(C|C)", "(CC|C)", "P-(R|R)"), REMEMBERING, FailurePolicy):
        plain = replace(PLAIN, shape=shape, guarantee=guarantee, policy=policy, timeouts=False)
        found += [replace(plain, crashes=False), replace(plain, lookup=False, blind=True, aborts=False)]
    return found


EVERYTHING = (*_alone(), *_chains(), *_branches())


def _is_in_the_slice(small: Small) -> bool:
    """Every option at one guarantee, every guarantee with chains, every kind of people with steps side by side."""
    if small.shape in KINDS_ALONE:
        return small.guarantee is Guarantee.BARRIER or (small.elsewhere and small.guarantee is Guarantee.KEY)
    if small.bindings and small.shape == "(C|C)":
        return True
    return small.shape in ("C-P", "P-R") or (small.shape == "(R|R)" and small.guarantee is Guarantee.KEY)


SLICE = tuple(small for small in EVERYTHING if _is_in_the_slice(small))
