"""Holds the rules of size, purity and wording that no linter of ours knows, and proves that each can fail.

A check is a function from a source text to its findings. `test_checkout_is_tidy` runs all of them over the checkout;
below it every check is shown a planted fault.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parent.parent
CODE_FOLDERS = ("sdk", "coordinator", "participants", "tests", "tools")
TEXT_FOLDERS = (*CODE_FOLDERS, "proto", "docs", "deploy", "locks", ".ci")
TEXT_SUFFIXES = {".py", ".md", ".toml", ".txt", ".in", ".proto", ".yaml", ".yml", ".json", ".sh", ".mako", ".ini"}
GENERATED = re.compile(r"_pb2(_grpc)?\.pyi?$")

LONGEST_FUNCTION_LINES = 70
LONGEST_FILE_LINES = 500

# Spelled in pieces, so that this file does not contain what it forbids.
LEFTOVER = re.compile(r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "XX" + "X")) + r")\b")
MACHINE_PATH = re.compile(r"(?<![\w.~:/-])/(root|home|work|Users|mnt)/[\w.]")
NAMED_HOST = re.compile(r"\w://")
IMPURE_MODULES = {"asyncio", "random", "secrets", "time", "uuid", "os", "threading", "subprocess", "socket"}
IMPURE_CALLS = {"now", "utcnow", "today", "open", "input", "print"}


@dataclass(frozen=True, slots=True)
class Check:
    """One rule: which files it looks at, and what it finds in the text of one."""

    name: str
    applies: Callable[[str], bool]
    find: Callable[[str], Iterator[str]]


def is_code(path: str) -> bool:
    """Python that people write."""
    return path.endswith(".py")


ON_VIRTUAL_TIME = "tests/unit/testing/"
"""Tests in whose runs a pause takes no time; and they see to it that it doesn't."""


def is_test(path: str) -> bool:
    """Tests, but for the module whose job is to wait for a condition, and those on virtual time."""
    exempt = path == "tests/waiting.py" or path.startswith(ON_VIRTUAL_TIME)
    return is_code(path) and path.startswith("tests/") and not exempt


def is_core(path: str) -> bool:
    """The pure decisions."""
    return is_code(path) and path.startswith("coordinator/amends_coordinator/core/")


def is_main(path: str) -> bool:
    """The coordinator's entry point."""
    return path == "coordinator/amends_coordinator/__main__.py"


REHEARSES = frozenset(f"sdk/amends/testing/{name}.py" for name in ("answers", "around", "participants", "rehearsal"))
"""What starts a coordinator in its own process, and is loaded by nobody else (tests/unit/testing/test_names.py)."""


def is_sdk(path: str) -> bool:
    """The SDK, which must work where the coordinator is not installed."""
    return is_code(path) and path.startswith("sdk/") and path not in REHEARSES


def is_lock(path: str) -> bool:
    """The lock files."""
    return path.startswith("locks/") and path.endswith(".txt")


def long_functions(source: str) -> Iterator[str]:
    """Functions over the limit, decorators not counted."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > LONGEST_FUNCTION_LINES:
                yield f"line {node.lineno}: {node.name} has {lines} lines, at most {LONGEST_FUNCTION_LINES}"


def long_file(source: str) -> Iterator[str]:
    """A file over the limit."""
    lines = source.count("\n")
    if lines > LONGEST_FILE_LINES:
        yield f"{lines} lines, at most {LONGEST_FILE_LINES}: split it by job"


def missing_docstring(source: str) -> Iterator[str]:
    """A module that does not say what its job is."""
    if not ast.get_docstring(ast.parse(source)):
        yield "line 1: no docstring that states the module's single job"


def leftovers(source: str) -> Iterator[str]:
    """Notes to oneself, in comments and in strings alike."""
    for number, line in enumerate(source.splitlines(), start=1):
        if LEFTOVER.search(line):
            yield f"line {number}: a note to oneself is no comment"


def sleeps(source: str) -> Iterator[str]:
    """Pauses in tests: time.sleep, and asyncio.sleep of anything but zero."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module in {"time", "asyncio"}:
            if any(name.name == "sleep" for name in node.names):
                yield f"line {node.lineno}: imports sleep; wait for a condition (tests/waiting.py)"
        elif isinstance(node, ast.Call) and _is_sleep(node):
            yield f"line {node.lineno}: sleeps; wait for a condition (tests/waiting.py)"


def _is_sleep(call: ast.Call) -> bool:
    match call.func:
        case ast.Attribute(value=ast.Name(id="time"), attr="sleep"):
            return True
        case ast.Attribute(value=ast.Name(id="asyncio"), attr="sleep"):
            return not (call.args and isinstance(call.args[0], ast.Constant) and call.args[0].value == 0)
        case _:
            return False


def impurities(source: str) -> Iterator[str]:
    """What a pure decision may not do: await, look at a clock, roll dice, touch the world."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.AsyncFunctionDef() | ast.Await() | ast.AsyncFor() | ast.AsyncWith():
                yield f"line {node.lineno}: the core never awaits"
            case ast.Import():
                yield from (_impure(node.lineno, name.name) for name in node.names if _is_impure(name.name))
            case ast.ImportFrom(module=str(module)) if _is_impure(module):
                yield _impure(node.lineno, module)
            case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name)) if name in IMPURE_CALLS:
                yield f"line {node.lineno}: {name}() looks at the world; it comes in with the event"
            case _:
                pass


def _is_impure(module: str) -> bool:
    return module.split(".")[0] in IMPURE_MODULES


def _impure(line: int, module: str) -> str:
    return f"line {line}: the core may not import {module}; what it needs comes in with the event"


def eager_coordinator(source: str) -> Iterator[str]:
    """Imports of the coordinator that happen when a module is loaded: the SDK must load without it."""
    lazy = {
        inner
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or _is_for_checkers(node)
        for inner in (child.lineno for child in ast.walk(node) if isinstance(child, ast.Import | ast.ImportFrom))
    }
    for node in ast.walk(ast.parse(source)):
        names = [name.name for name in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
        if any(name.split(".")[0] == "amends_coordinator" for name in names):
            line = getattr(node, "lineno", 0)
            if line not in lazy:
                yield f"line {line}: imports the coordinator when the SDK is loaded; import it inside the function"


def _is_for_checkers(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def entry_point_imports(source: str) -> Iterator[str]:
    """What `python -m amends_coordinator` imports of ours beside bootstrap."""
    for node in ast.walk(ast.parse(source)):
        names = [name.name for name in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{name.name}" for name in node.names]
        for name in names:
            if name.startswith("amends") and not f"{name}.".startswith("amends_coordinator.bootstrap."):
                yield f"imports {name}; the entry point knows bootstrap only"


def machine_paths(source: str) -> Iterator[str]:
    """Paths that exist on one person's machine only."""
    for number, line in enumerate(source.splitlines(), start=1):
        if MACHINE_PATH.search(line):
            yield f"line {number}: a path of one machine"


def named_hosts(source: str) -> Iterator[str]:
    """A registry's address in a lock file: it must install from whatever index a machine is set up for."""
    for number, line in enumerate(source.splitlines(), start=1):
        if NAMED_HOST.search(line):
            yield f"line {number}: names a host"


def unreasoned_ignores(source: str) -> Iterator[str]:
    """A silenced checker without a reason beside it (or in the comment line above)."""
    lines = source.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        found = re.search(
            r"#\s*(type: ignore|pyright: ignore|noqa)(\[[^\]]*\]|: ?[A-Z0-9, ]+)?(?P<rest>.*)$", token.string
        )
        above = lines[token.start[0] - 2].strip() if token.start[0] > 1 else ""
        if found and len(found["rest"].strip(" #-:")) < 8 and not above.startswith("#"):
            yield f"line {token.start[0]}: silences a checker without saying why"


CHECKS = (
    Check("function-length", is_code, long_functions),
    Check("file-length", is_code, long_file),
    Check("module-docstring", is_code, missing_docstring),
    Check("leftovers", lambda _: True, leftovers),
    Check("sleeping-tests", is_test, sleeps),
    Check("pure-core", is_core, impurities),
    Check("lazy-coordinator", is_sdk, eager_coordinator),
    Check("entry-point", is_main, entry_point_imports),
    Check("machine-paths", lambda _: True, machine_paths),
    Check("lock-names-no-host", is_lock, named_hosts),
    Check("reasoned-ignores", is_code, unreasoned_ignores),
)


def texts() -> Iterator[Path]:
    """Every text of the checkout that people write."""
    yield from (path for path in CHECKOUT.iterdir() if path.is_file() and _is_text(path))
    for folder in TEXT_FOLDERS:
        for path in sorted((CHECKOUT / folder).rglob("*")):
            if path.is_file() and _is_text(path) and "__pycache__" not in path.parts:
                yield path


def _is_text(path: Path) -> bool:
    named = path.suffix in TEXT_SUFFIXES or path.name in {"Makefile", "Dockerfile", "run"}
    return named and not GENERATED.search(path.name)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_checkout_is_tidy(check: Check) -> None:
    """Every rule holds in every file it applies to."""
    findings: list[str] = []
    for path in texts():
        relative = path.relative_to(CHECKOUT).as_posix()
        if check.applies(relative):
            findings += [f"{relative}: {finding}" for finding in check.find(path.read_text("utf-8"))]
    assert not findings, "\n".join(["", *findings])


SLASH = "/"
PLANTED = [
    (long_functions, "def f():\n" + "    x = 1\n" * 70, "def f():\n" + "    x = 1\n" * 69),
    (long_functions, "async def f():\n" + "    x = 1\n" * 70, "async def f():\n    x = 1\n"),
    (long_file, "x = 1\n" * 501, "x = 1\n" * 500),
    (missing_docstring, "x = 1\n", '"""Says it."""\nx = 1\n'),
    (leftovers, "# TO" + "DO: later\n", "# to do it later is fine\n"),
    (leftovers, 'x = "FIX' + 'ME"\n', "prefix_me = 1\n"),
    (sleeps, "import time\ntime.sleep(1)\n", "import time\ntime.monotonic()\n"),
    (sleeps, "async def f():\n    await asyncio.sleep(0.1)\n", "async def f():\n    await asyncio.sleep(0)\n"),
    (sleeps, "async def f(x):\n    await asyncio.sleep(x)\n", "async def f(x):\n    await x.wait()\n"),
    (sleeps, "from time import sleep\n", "from time import monotonic\n"),
    (impurities, "async def f(): ...\n", "def f(): ...\n"),
    (impurities, "import random\n", "import math\n"),
    (impurities, "from uuid import uuid4\n", "from datetime import datetime\n"),
    (impurities, "import asyncio.events\n", "import enum\n"),
    (impurities, "def f():\n    return datetime.now(UTC)\n", "def f(now):\n    return now + timedelta(1)\n"),
    (eager_coordinator, "import amends_coordinator\n", "def f():\n    import amends_coordinator\n"),
    (
        eager_coordinator,
        "from amends_coordinator.bootstrap import serve\n",
        "if TYPE_CHECKING:\n    from amends_coordinator.bootstrap import serve\n",
    ),
    (
        machine_paths,
        f"x = '{SLASH}home{SLASH}someone'\n",
        f"x = 'https:{SLASH}{SLASH}example.org{SLASH}home{SLASH}a'\n",
    ),
    (machine_paths, f"see {SLASH}root{SLASH}x\n", "see root/x\n"),
    (named_hosts, f"--index-url https:{SLASH}{SLASH}example.org\n", "uv==1.0 --hash=sha256:00\n"),
    (unreasoned_ignores, "x = 1  # no" + "qa: E501\n", "x = 1  # no" + "qa: E501 - the address is one word\n"),
    (
        unreasoned_ignores,
        "x = 1  # type: " + "ignore[misc]\n",
        "# upstream has no stub\nx = 1  # type: " + "ignore[misc]\n",
    ),
    (entry_point_imports, "from amends_coordinator import engine\n", "from amends_coordinator import bootstrap\n"),
    (
        entry_point_imports,
        "import amends_coordinator.settings\n",
        "import sys\nfrom amends_coordinator.bootstrap import main\n",
    ),
]


@pytest.mark.parametrize(("find", "bad", "good"), PLANTED)
def test_each_check_can_fail(find: Callable[[str], Iterator[str]], bad: str, good: str) -> None:
    """A planted fault is found, and its repaired twin is not: a rule that cannot fail guards nothing."""
    assert list(find(bad))
    assert not list(find(good))


def test_every_check_is_proven() -> None:
    """No rule without a planted fault."""
    assert {check.find for check in CHECKS} == {find for find, _, _ in PLANTED}
