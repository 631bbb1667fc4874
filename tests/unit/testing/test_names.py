"""`import amends.testing`: a pytest plugin lives here, so it loads nothing that isn't asked for."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

from amends import testing

LIGHT = """\
import sys
import amends.testing
sys.exit("loaded the coordinator" if "amends_coordinator" in sys.modules or "grpc" in sys.modules else 0)
"""

WITHOUT_THE_EXTRA = """\
import sys
sys.modules["structlog"] = None
import amends.testing
try:
    amends.testing.Rehearsal
except ModuleNotFoundError as error:
    sys.exit(0 if "pip install 'amends[coordinator]'" in str(error) else str(error))
sys.exit("it was there")
"""


def test_the_names_are_what_type_checkers_see() -> None:
    """Each name is the very object of the module that the checkers read it from; none is missing, none is more."""
    tree = ast.parse(Path(testing.__file__).read_text("utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom) and node.module != "types"]
    seen = {alias.name: node.module or "" for node in imports for alias in node.names}
    assert set(seen) == set(testing.__all__)
    for name, home in seen.items():
        assert getattr(testing, name) is vars(import_module(home))[name], name
    assert set(testing.__all__) <= set(dir(testing))


def test_a_run_without_rehearsals_loads_no_coordinator() -> None:
    """Every pytest run of everybody who has amends loads the plugin."""
    done = subprocess.run([sys.executable, "-c", LIGHT], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_missing_extra_is_told() -> None:
    """In a sentence that says what to install."""
    done = subprocess.run([sys.executable, "-c", WITHOUT_THE_EXTRA], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
