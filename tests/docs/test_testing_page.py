"""docs/testing.md: its example runs, and a failure looks as it says."""

from __future__ import annotations

import importlib.util
import re
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from amends.testing import FaultMatrix
from tests.docs.pages import CHECKOUT, named_files
from tests.faults.planted import WithoutBarrier

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    import pytest

PAGE = CHECKOUT / "docs" / "testing.md"
FILE, CASE = "test_errand_faults.py", "errand/reserve/action/reply-lost"
TEST = f"{FILE}::test_an_errand_leaves_the_shelf_consistent[{CASE}]"
REPLAY = f"python -m pytest '{TEST}' --fault-seed=0"


def example(folder: Path) -> Any:  # Any: the page's module has what the page says
    """The page's file as a module."""
    path = folder / FILE
    path.write_text(named_files(PAGE)[FILE])
    spec = importlib.util.spec_from_file_location("errand_of_the_page", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def without_barrier(module: Any) -> FaultMatrix[Any, Any]:  # Any: see above
    """The page's matrix, with a servicer that reserves outside of the barrier."""

    @asynccontextmanager
    async def shelf() -> AsyncGenerator[Any]:  # Any: see above
        async with module.shelf() as world:
            world.servicer = WithoutBarrier
            yield world

    return FaultMatrix(module.errand, input=module.ERRAND.input, world=shelf)


def test_the_example_holds_and_a_failure_looks_like_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a reader copies works, and what it shows of a failure is what they get."""
    monkeypatch.chdir(tmp_path)
    module = example(tmp_path)
    assert module.ERRAND.run(CASE).consistent
    result = without_barrier(module).run(CASE)
    assert not result.consistent
    shown = re.search(r"<!-- failure: .*? -->\n```text\n(?P<text>.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert shown is not None
    assert shown["text"].rstrip() == result.told(replay=REPLAY)
