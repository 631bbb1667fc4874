"""Finds the definitions that a command is given: sagas in Python modules, and files with a definition as JSON.

A module is imported, so what it does when it is imported is done. A definition that can't be built (a step without its
undo, a field that isn't there) is no reason to stop: it is one of the faults that the command reports.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, TypeGuard

from google.protobuf.descriptor_pb2 import FileDescriptorSet

from amends.cli.definition_files import read_definition
from amends.cli.errors import USAGE, CommandError
from amends.errors import DefinitionError, WrongMessageError
from amends.saga import Saga
from amends.v1.saga_definition_pb2 import SagaDefinition

FAULTS = (DefinitionError, WrongMessageError)
"""What the builder raises at the line of a description that is wrong."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A definition, or why there is none. `source` is what the command was given, and where in it."""

    source: str
    name: str
    definition: SagaDefinition | None
    fault: str = ""


def candidates(targets: Sequence[str], described: FileDescriptorSet) -> Iterator[Candidate]:
    """The definitions in all targets, those that stand in several targets once.

    Arguments:
        targets: `pkg.module`, `path/to/module.py`, both perhaps with `:name`, or `path/to/definition.json`.
        described: types for definition files that don't carry their own.

    Raises:
        CommandError: a target isn't there, can't be imported, or has no saga.
    """
    seen: set[int] = set()
    for target in targets:
        if target.endswith(".json"):
            definition = read_definition(Path(target), described)
            yield Candidate(target, definition.name, definition)
            continue
        place, _, name = target.partition(":")
        try:
            module = _imported(place)
        except FAULTS as error:
            yield Candidate(f"{place}{_line(error, place)}", "", None, str(error))
            continue
        for attribute, saga in _sagas(module, target, name):
            if id(saga) not in seen:
                seen.add(id(saga))
                yield _built(f"{place}:{attribute}", saga)


# Any: whatever goes into a saga and comes out of it.
def _built(source: str, saga: Saga[Any, Any]) -> Candidate:
    try:
        return Candidate(source, saga.name, saga.definition())
    except DefinitionError as error:
        return Candidate(source, saga.name, None, str(error))


def _sagas(module: ModuleType, target: str, name: str) -> Iterator[tuple[str, Saga[Any, Any]]]:
    known = dict(_at_module_level(module))
    if not known:
        raise CommandError(
            f"{target}: there is no amends.Saga at module level.",
            "Name a module that has one: MODULE or path/to/module.py.",
            exit_code=USAGE,
        )
    if name and name not in known:
        raise CommandError(
            f"{target}: {name!r} is no amends.Saga; the module has: {', '.join(sorted(known))}.", exit_code=USAGE
        )
    yield from ((attribute, saga) for attribute, saga in known.items() if name in ("", attribute))


def _at_module_level(module: ModuleType) -> Iterator[tuple[str, Saga[Any, Any]]]:
    for attribute, value in vars(module).items():
        if _is_saga(value):
            yield attribute, value


def _is_saga(value: object) -> TypeGuard[Saga[Any, Any]]:
    # Not isinstance: it asks the value for its class, and a lazy object, like Django's settings, then loads what it is.
    return issubclass(type(value), Saga)


def _imported(place: str) -> ModuleType:
    """The module, imported as a program beside it would import it."""
    _require_target(place)
    try:
        with _printing_to_stderr():
            if _is_file(place):
                return _imported_file(Path(place).resolve())
            _search_in(Path.cwd())
            return importlib.import_module(place)
    except FAULTS:
        raise
    except SyntaxError as error:
        raise CommandError(f"{place} can't be imported: {error}", exit_code=USAGE) from error
    except SystemExit as error:
        raise CommandError(*_unguarded(place, f"it ended the process (exit {error.code})"), exit_code=USAGE) from error
    except ModuleNotFoundError as error:
        raise CommandError(*_missing_module(place, error), exit_code=USAGE) from error
    except ImportError as error:
        raise CommandError(*_missing_name(f"{place}{_line(error, place)}", error), exit_code=USAGE) from error
    except Exception as error:
        said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise CommandError(*_unguarded(f"{place}{_line(error, place)}", said), exit_code=USAGE) from error


@contextmanager
def _printing_to_stderr() -> Generator[None]:
    """What a module prints when it is imported must not stand in the middle of a report. Not only Python prints: C code
    and processes that it starts write to the descriptor itself.
    """
    try:
        kept = os.dup(1)
    except OSError:  # it is closed: nobody reads a report
        yield
        return
    try:
        _flush()
        with suppress(OSError):  # nor is there anything to keep apart where stderr is closed
            os.dup2(2, 1)
        with redirect_stdout(sys.stderr):
            yield
    finally:
        _flush()
        os.dup2(kept, 1)
        os.close(kept)


def _flush() -> None:
    """Have what was printed so far written to where it belongs: Python and C each keep some of it back."""
    if sys.__stdout__ is not None:
        sys.__stdout__.flush()
    ctypes.CDLL(None).fflush(None)


def _require_target(place: str) -> None:
    path = Path(place)
    if path.is_dir() and (_is_file(place) or not place.strip(".")):
        raise CommandError(
            f"{place or '.'} is a folder.",
            "Name a file in it, or a module: path/to/module.py or package.module.",
            exit_code=USAGE,
        )
    if _is_file(place) and not path.is_file():
        raise CommandError(f"no such file: {place}", exit_code=USAGE)


def _imported_file(path: Path) -> ModuleType:
    root, names = path.parent, [path.stem]
    while (root / "__init__.py").is_file():
        names.insert(0, root.name)
        root = root.parent
    _search_in(root)
    if len(names) > 1:
        return importlib.import_module(".".join(names).removesuffix(".__init__"))
    # By its path: two programs may have modules of one name, and this process must not take one for the other.
    spec = importlib.util.spec_from_file_location(f"{path.stem}__{abs(hash(path))}", path)
    if spec is None or spec.loader is None:
        raise CommandError(f"{path} is no Python module.", exit_code=USAGE)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _search_in(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _is_file(place: str) -> bool:
    return place.endswith(".py") or "/" in place


def _line(error: Exception, place: str) -> str:
    """Where in the target an error came up, as ":12"; empty if it was elsewhere."""
    module = f"/{place.replace('.', '/')}"
    endings = (Path(place).resolve().as_posix(),) if _is_file(place) else (f"{module}.py", f"{module}/__init__.py")
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if Path(frame.filename).as_posix().endswith(endings)]
    return f":{lines[-1]}" if lines else ""


def _missing_name(place: str, error: ImportError) -> list[str]:
    if "no known parent package" not in str(error):
        return [f"{place} can't be imported: {error}"]
    return [
        f"{place} can't be imported by its path: it imports from its package, and its folder has no __init__.py.",
        "Name it as its program imports it: package.module, in the folder that holds the package.",
    ]


def _missing_module(place: str, error: ModuleNotFoundError) -> list[str]:
    missing = error.name or ""
    if place == missing or place.startswith(f"{missing}."):
        return [
            f"no module {missing!r}; looked in the working directory and where this Python ({sys.executable}) looks.",
            "Run the command where the module can be imported from, or give its path: path/to/module.py.",
        ]
    return [
        f"{place} can't be imported: it needs the module {missing!r}, which is not there.",
        "Install it beside amends, or run the command where it can be imported from (PYTHONPATH).",
    ]


def _unguarded(place: str, said: str) -> list[str]:
    return [
        f"{place} can't be imported: {said}",
        'A module is imported to find its sagas; what it runs belongs under `if __name__ == "__main__":`.',
    ]
