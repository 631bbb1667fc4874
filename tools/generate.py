"""Generates the Python code and typed stubs of every proto, or checks that what is committed is what they give.

Runs in an environment of its own (see locks/proto.in), because the old protoc and the project need different protobufs.
The stub plugins, which need the newer one, are processes of their own and come from `.venv`.

Proto path = Python path, so no import is ever rewritten: each root below has its protos under `source` and the modules
made of them under `output`, at the same relative place.
The check generates into a temporary folder and compares file by file; it needs no version control.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
PUBLIC = Path("proto")
PLUGINS = CHECKOUT / ".venv" / "bin"
GENERATED = re.compile(r"_pb2(_grpc)?\.pyi?$")
SERVICE = re.compile(r"^service\s", re.MULTILINE)
EMPTY_PACKAGE = '"""Generated from the protos beside the same path; see `make proto`."""\n'


@dataclass(frozen=True, slots=True)
class Root:
    """One proto root: protos under `source` become modules under `output`."""

    source: Path
    output: Path

    def protos(self) -> list[Path]:
        """Every proto of this root, relative to it, in a fixed order."""
        folder = CHECKOUT / self.source
        return sorted(path.relative_to(folder) for path in folder.rglob("*.proto"))


ROOTS = (
    Root(source=PUBLIC, output=Path("sdk")),
    Root(source=Path("participants"), output=Path("participants")),
    Root(source=Path("tests/protos"), output=Path("tests/protos")),
)


def main() -> int:
    """Generate, or with --check compare; 0 if all is well."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; fail if the committed code is stale")
    check = bool(parser.parse_args().check)
    stale: list[str] = []
    for root in ROOTS:
        with tempfile.TemporaryDirectory() as scratch:
            if not generate(root, Path(scratch)):
                return 1
            stale += differences(root, Path(scratch)) if check else install(root, Path(scratch))
    if check and stale:
        sys.stderr.write("generated code is stale, run 'make proto' and commit:\n  " + "\n  ".join(stale) + "\n")
        return 1
    for line in stale:
        print(f"proto: {line}")
    return 0


def generate(root: Root, into: Path) -> bool:
    """Run protoc for one root; its own message says what is wrong with a proto."""
    protos = root.protos()
    if not protos:
        return True
    plain = ["--python_out=", "--mypy_out=quiet:"]
    with_services = [proto for proto in protos if SERVICE.search((CHECKOUT / root.source / proto).read_text("utf-8"))]
    # grpc_python would write an empty module for a proto without a service, and no stub beside it.
    return run_protoc(root, protos, [f"{flag}{into}" for flag in plain]) and run_protoc(
        root, with_services, [f"--grpc_python_out={into}", f"--mypy_grpc_out=quiet,only_async:{into}"]
    )


def run_protoc(root: Root, protos: list[Path], outputs: list[str]) -> bool:
    """One protoc call with our include path."""
    if not protos:
        return True
    arguments = [
        sys.executable,
        "-m",
        "grpc_tools.protoc",
        f"--plugin=protoc-gen-mypy={PLUGINS / 'protoc-gen-mypy'}",
        f"--plugin=protoc-gen-mypy_grpc={PLUGINS / 'protoc-gen-mypy_grpc'}",
        f"-I{CHECKOUT / root.source}",
        *([] if root.source == PUBLIC else [f"-I{CHECKOUT / PUBLIC}"]),
        *outputs,
        *map(str, protos),
    ]
    return subprocess.run(arguments, check=False, stdin=subprocess.DEVNULL).returncode == 0


def modules(folder: Path) -> dict[Path, bytes]:
    """The generated files below a folder, by relative path."""
    return {
        path.relative_to(folder): path.read_bytes()
        for path in sorted(folder.rglob("*_pb2*"))
        if GENERATED.search(path.name)
    }


def differences(root: Root, fresh: Path) -> list[str]:
    """What is missing, changed, or left over from a proto that is gone."""
    output = CHECKOUT / root.output
    wanted, found = modules(fresh), modules(output)
    lines = [f"{root.output / path}: missing" for path in wanted if path not in found]
    lines += [f"{root.output / path}: differs" for path in wanted if path in found and found[path] != wanted[path]]
    lines += [f"{root.output / path}: its proto is gone" for path in found if path not in wanted]
    lines += [f"{root.output / path}: missing" for path in packages(wanted) if not (output / path).exists()]
    return lines


def install(root: Root, fresh: Path) -> list[str]:
    """Write what changed, remove what is left over, and make the packages importable; says what was done."""
    output = CHECKOUT / root.output
    wanted, found = modules(fresh), modules(output)
    lines: list[str] = []
    for path, content in wanted.items():
        if found.get(path) != content:
            (output / path).parent.mkdir(parents=True, exist_ok=True)
            (output / path).write_bytes(content)
            lines.append(f"wrote {root.output / path}")
    for path in found:
        if path not in wanted:
            (output / path).unlink()
            lines.append(f"removed {root.output / path}")
    for path in packages(wanted):
        if not (output / path).exists():
            (output / path).write_text(EMPTY_PACKAGE, "utf-8")
            lines.append(f"wrote {root.output / path}")
    return lines


def packages(wanted: dict[Path, bytes]) -> list[Path]:
    """The `__init__.py` of every folder between an output root and a generated module."""
    folders = {parent for path in wanted for parent in path.parents if parent != Path()}
    return sorted(folder / "__init__.py" for folder in folders)


if __name__ == "__main__":
    sys.exit(main())
