"""`import amends`: the names are there, and what they need is loaded only by those who use them."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import amends

LIGHT = """\
import sys
import amends.v1.saga_pb2
heavy = {"amends.client", "amends.participant", "amends.saga", "opentelemetry", "grpc"} & set(sys.modules)
sys.exit(f"loaded: {heavy}" if heavy else 0)
"""


def promised() -> dict[str, str]:
    """The names that type checkers see, with the modules where they say these come from."""
    tree = ast.parse(Path(amends.__file__).read_text("utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: node.module or "" for node in imports for alias in node.names}


def test_the_names_are_what_type_checkers_see() -> None:
    """Each name is the very object of the module that the checkers read it from; none is missing, none is more."""
    seen = promised()
    assert set(seen) == set(amends.__all__)
    for name, home in seen.items():
        assert getattr(amends, name) is vars(import_module(home))[name], name
    assert set(amends.__all__) <= set(dir(amends))


def test_a_name_that_is_not_there() -> None:
    """An ordinary AttributeError, in which Python can propose the right name."""
    with pytest.raises(AttributeError, match="module 'amends' has no attribute 'Sagga'"):
        _ = amends.Sagga  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownVariableType, reportUnknownMemberType] - the point of the test


def test_generated_code_costs_only_itself() -> None:
    """Those who import only messages load nothing of the SDK, and no gRPC."""
    done = subprocess.run([sys.executable, "-c", LIGHT], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
