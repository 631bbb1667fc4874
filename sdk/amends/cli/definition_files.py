"""Reads definitions as JSON (the proto's own mapping), and the descriptors of what they name."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, cast
from typing import Any as Json

import typer
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.json_format import ParseDict, ParseError
from google.protobuf.message import DecodeError

from amends.cli.errors import USAGE, CommandError
from amends.cli.generate import proto_name, protoc_command, run_protoc
from amends.cli.payloads import explain_parse_error, pool_of
from amends.protos import include_directory
from amends.v1.saga_definition_pb2 import SagaDefinition

Descriptors = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="FILE",
        help="Types for definition files: a descriptor set, made by protoc with --include_imports.",
    ),
]
Protos = Annotated[
    list[Path] | None, typer.Option("--proto", metavar="FILE", help="Types for definition files: a proto.")
]
Includes = Annotated[
    list[Path] | None,
    typer.Option("-I", "--include", help="Folder that imports of protos are relative to.  [default: .]"),
]


def described_types(
    descriptors: Sequence[Path] | None, protos: Sequence[Path] | None, include: Sequence[Path] | None
) -> FileDescriptorSet:
    """The files of all descriptor sets and protos that were given.

    Raises:
        CommandError: one of them can't be read.
    """
    described = FileDescriptorSet()
    for path in descriptors or ():
        described.MergeFrom(_descriptor_set(path))
    if protos:
        described.MergeFrom(_compiled(protos, include or [Path()]))
    return described


def read_definition(path: Path, described: FileDescriptorSet) -> SagaDefinition:
    """The definition in a file, with the types that it doesn't carry itself from `described`.

    Raises:
        CommandError: it can't be read, or is no definition; names the field.
    """
    try:
        given: Json = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise CommandError(f"can't read {path}: {error.strerror or error}", exit_code=USAGE) from error
    except (ValueError, RecursionError) as error:
        raise CommandError(f"{path} is no JSON: {error}", exit_code=USAGE) from error
    if not isinstance(given, dict):
        raise CommandError(
            f"{path} must be a JSON object with the fields of amends.v1.SagaDefinition.", exit_code=USAGE
        )
    fields = cast("dict[str, Json]", given)
    carried = _parsed(path, {"descriptors": fields.get("descriptors", {})}, SagaDefinition())
    names = {file.name for file in carried.descriptors.file}
    carried.descriptors.file.extend(file for file in described.file if file.name not in names)
    definition = _parsed(path, fields, carried)
    definition.descriptors.CopyFrom(carried.descriptors)
    return definition


# JSON has no narrower type than this: whatever stands in the file.
def _parsed(path: Path, given: dict[str, Json], types: SagaDefinition) -> SagaDefinition:
    """The definition; its literals are of the types that `types` carries."""
    try:
        return ParseDict(given, SagaDefinition(), descriptor_pool=pool_of(types))
    except (ParseError, ValueError, TypeError, RecursionError) as error:
        lines = explain_parse_error(str(error), SagaDefinition.DESCRIPTOR.full_name, str(path))
        raise CommandError(*lines, *_types_hint(str(error)), exit_code=USAGE) from error


def _types_hint(said: str) -> list[str]:
    if "message descriptor" not in said:
        return []
    return [
        "Literals need their type: give the proto that has it with --proto, or a descriptor set with --descriptors."
    ]


def _descriptor_set(path: Path) -> FileDescriptorSet:
    try:
        return FileDescriptorSet.FromString(path.read_bytes())
    except OSError as error:
        raise CommandError(f"can't read {path}: {error.strerror or error}", exit_code=USAGE) from error
    except DecodeError as error:
        raise CommandError(*_no_descriptor_set(path), exit_code=USAGE) from error


def _no_descriptor_set(path: Path) -> tuple[str, str]:
    # Never with this path as protoc's output: it may be the proto itself.
    if path.suffix == ".proto":
        return f"{path} is a proto, no descriptor set.", "Give it with --proto."
    make = "protoc --include_imports --descriptor_set_out=FILE …"
    return f"{path} is no descriptor set.", f"Make one with {make}, or give the protos with --proto."


def _compiled(protos: Sequence[Path], includes: Sequence[Path]) -> FileDescriptorSet:
    names = [proto_name(proto, includes) for proto in protos]
    folders = [f"-I{include_directory()}", *(f"-I{folder.resolve()}" for folder in includes)]
    with tempfile.TemporaryDirectory() as scratch:
        described = Path(scratch, "described")
        command = [*protoc_command(), *folders, "--include_imports", f"--descriptor_set_out={described}", *names]
        run_protoc(command, includes)
        return FileDescriptorSet.FromString(described.read_bytes())
