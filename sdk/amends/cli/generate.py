"""The command `generate`: runs protoc with amends' own include path and typed stubs, and explains the classic mistakes.

Everything is generated into a temporary folder first, so that a failing run leaves nothing half written.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from amends.annotations import unknown_methods
from amends.cli.errors import CommandError
from amends.cli.protoc_errors import explain
from amends.protos import include_directory

PLUGINS = ("protoc-gen-mypy", "protoc-gen-mypy_grpc")
EXTRA = "pip install 'amends[cli]'"


class Handlers(StrEnum):
    """What type checkers let a handler of a servicer be."""

    ASYNC = "async"
    PLAIN = "plain"
    BOTH = "both"


STUBS = {Handlers.ASYNC: "quiet,only_async", Handlers.PLAIN: "quiet,only_sync", Handlers.BOTH: "quiet"}
"""What mypy-protobuf is told for each."""


def generate(
    protos: Annotated[
        list[Path] | None, typer.Argument(metavar="PROTO...", help="Protos to generate from.", show_default=False)
    ] = None,
    out: Annotated[
        Path, typer.Option(help="Folder for the modules; they keep the protos' relative paths.", show_default=".")
    ] = Path(),
    include: Annotated[
        list[Path] | None,
        typer.Option("-I", "--include", help="Folder that imports are relative to; may be repeated.  [default: .]"),
    ] = None,
    handlers: Annotated[
        Handlers, typer.Option(help="What the typed stubs let handlers be: `async def`, plain `def`, or both.")
    ] = Handlers.ASYNC,
    show_include: Annotated[
        bool,
        typer.Option("--show-include", help="Only print the folder that a protoc of your own needs after -I."),
    ] = False,
) -> None:
    """Generate Python modules and typed stubs from your protos, which may import "amends/v1/annotations.proto"."""
    if show_include:
        typer.echo(include_directory())
        return
    if not protos:
        raise CommandError("name the protos to generate from, for example: amends generate tickets.proto --out .")
    includes = include or [Path()]
    names = [proto_name(proto, includes) for proto in protos]
    command = [*protoc_command(), f"-I{include_directory()}", *(f"-I{folder.resolve()}" for folder in includes)]
    with tempfile.TemporaryDirectory() as scratch:
        fresh, described = Path(scratch, "fresh"), Path(scratch, "described")
        fresh.mkdir()
        messages = [f"--python_out={fresh}", f"--mypy_out=quiet:{fresh}", f"--descriptor_set_out={described}"]
        run_protoc([*command, *messages, *names], includes)
        files = FileDescriptorSet.FromString(described.read_bytes()).file
        refuse_unknown_methods(files)
        services = [file.name for file in files if file.service]
        if services:
            stubs = [f"--grpc_python_out={fresh}", f"--mypy_grpc_out={STUBS[handlers]}:{fresh}"]
            run_protoc([*command, *stubs, *services], includes)
        for path in install(fresh, out):
            typer.echo(f"wrote {path}")


def proto_name(proto: Path, includes: Sequence[Path]) -> str:
    """The name of a proto as others import it: its path below one of the include folders.

    protoc itself compares paths letter by letter; here they are resolved first.
    """
    for folder in includes:
        if not folder.is_dir():
            raise CommandError(f"no such folder: {folder} (given with -I)")
    if proto.is_file():
        for folder in includes:
            if proto.resolve().is_relative_to(folder.resolve()):
                return proto.resolve().relative_to(folder.resolve()).as_posix()
        raise CommandError(
            f"{proto} is outside the include path ({', '.join(map(str, includes))}).",
            "Name the folder that its imports are relative to with -I; the modules keep the path below it.",
        )
    if any((folder / proto).is_file() for folder in includes):
        return proto.as_posix()
    also = [str(folder) for folder in includes if folder != Path()]
    raise CommandError(f"no such file: {proto}", f"Looked in {', '.join(['the working directory', *also])}.")


def protoc_command() -> list[str]:
    """How to run protoc with the plugins for typed stubs, wherever they were installed."""
    if find_spec("grpc_tools") is None:
        raise CommandError(f"protoc is missing (the package grpcio-tools): {EXTRA}")
    command = [sys.executable, "-m", "grpc_tools.protoc"]
    for plugin in PLUGINS:
        found = next(filter(None, (shutil.which(plugin, path=folder) for folder in _script_folders())), None)
        if found is None:
            raise CommandError(f"the protoc plugin {plugin} is missing (the package mypy-protobuf): {EXTRA}")
        command.append(f"--plugin={plugin}={found}")
    return command


def run_protoc(command: list[str], includes: Sequence[Path]) -> None:
    """Run protoc once; what it refuses is explained where the mistake is a known one."""
    done = subprocess.run(
        command, check=False, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="backslashreplace"
    )
    if done.returncode:
        lines = explain(done.stderr, _listed(includes)) or [done.stderr.strip() or "protoc failed and said nothing"]
        raise CommandError(*lines, exit_code=done.returncode)


def refuse_unknown_methods(files: Iterable[FileDescriptorProto]) -> None:
    """Say which annotations name methods that aren't there: protoc takes any text for one."""
    faults = [
        f"{file.name}: {fault}"
        for file in files
        for service in file.service
        for fault in unknown_methods(service, f"{file.package}.{service.name}" if file.package else service.name)
    ]
    if faults:
        raise CommandError(*faults)


def install(fresh: Path, out: Path) -> list[Path]:
    """Copy what was generated to where it belongs; the paths written."""
    written: list[Path] = []
    for source in sorted(path for path in fresh.rglob("*") if path.is_file()):
        target = out / source.relative_to(fresh)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(source.read_bytes())
        except OSError as error:
            raise CommandError(f"can't write {target}: {error.strerror or error}") from error
        written.append(target)
    return written


def _script_folders() -> Iterator[str | None]:
    """Where the plugins may be: beside this Python, where pip puts scripts, on the PATH (None)."""
    yield str(Path(sys.executable).parent)
    yield sysconfig.get_path("scripts")
    yield sysconfig.get_path("scripts", sysconfig.get_preferred_scheme("user"))
    yield None


def _listed(includes: Sequence[Path]) -> str:
    return ", ".join(str(folder) for folder in includes)
