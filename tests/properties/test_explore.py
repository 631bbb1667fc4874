"""A slice of the exploration of the core runs with every test run; `make explore` does all of it.

The slice is dealt out into bunches, so that they can run side by side. The run's summary says how many states it saw.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.properties.explore.explorer import explore
from tests.properties.explore.shapes import Small
from tests.properties.explore.small_sagas import EVERYTHING, SLICE
from tests.properties.explore.walks import walked

BUNCHES = 6
LEAST_STATES = 300_000
MIXED = 24


@pytest.mark.timeout(600)  # a bunch takes seconds, but much longer beside other work
@pytest.mark.parametrize("bunch", range(BUNCHES))
def test_no_interleaving_breaks_a_promise(bunch: int, record_property: Callable[[str, object], None]) -> None:
    """S1 to S6, S8 to S12, L1: of the core beside a model of the world, in every state of small sagas."""
    states = 0
    for small in SLICE[bunch::BUNCHES]:
        findings = explore(small)
        assert not findings.broken, "\n\n".join((str(small), *findings.broken))
        states += findings.states
    record_property("explored_states", states)
    assert states >= LEAST_STATES // BUNCHES


def test_no_walk_breaks_a_promise() -> None:
    """S1 to S6, S8 to S12, L1: guarantees, lookups, budgets that differ from step to step, and all that people do."""
    for seed in range(MIXED):
        small, findings = walked(seed, walks=5)
        assert not findings.broken, "\n\n".join((f"mixed {seed}: {small}", *findings.broken))


def test_the_slice_has_every_kind_of_circumstance() -> None:
    """L2: what `make explore` varies, the slice varies too, so that no option is only seen once a day."""
    for option in Small.__dataclass_fields__:
        every, some = ({getattr(small, option) for small in smalls} for smalls in (EVERYTHING, SLICE))
        assert option == "shape" or some == every, option
    assert set(SLICE) <= set(EVERYTHING)
    assert len(set(EVERYTHING)) == len(EVERYTHING)
