"""`amends generate` really run: what it writes works, and the classic mistakes are explained."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from amends.cli import generate
from amends.cli.app import app
from amends.protos import include_directory

SERVICE = """\
syntax = "proto3";
package bakery.v1;
import "amends/v1/annotations.proto";
import "bakery/v1/cake.proto";
message BakeRequest { Cake cake = 1; }
message BakeResponse { string cake_id = 1; }
message EatRequest { string cake_id = 1; }
message EatResponse {}
service BakeryService {
  rpc Bake(BakeRequest) returns (BakeResponse) { option (amends.v1.step) = { compensation: "Eat" }; }
  rpc Eat(EatRequest) returns (EatResponse);
}
"""
USE = """\
from amends.v1 import annotations_pb2
from bakery.v1 import bakery_pb2, bakery_pb2_grpc
bake = bakery_pb2.DESCRIPTOR.services_by_name["BakeryService"].methods_by_name["Bake"]
assert bake.GetOptions().Extensions[annotations_pb2.step].compensation == "Eat"
assert bakery_pb2_grpc.BakeryServiceServicer.Bake
"""


@pytest.fixture
def protos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of protos below the working directory: a service that imports the annotations and another proto."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "protos" / "bakery" / "v1"
    folder.mkdir(parents=True)
    (folder / "bakery.proto").write_text(SERVICE, "utf-8")
    (folder / "cake.proto").write_text(
        'syntax = "proto3";\npackage bakery.v1;\nmessage Cake { int32 layers = 1; }\n', "utf-8"
    )
    return folder


def test_generated_modules_work(protos: Path, runner: CliRunner, tmp_path: Path) -> None:
    """Modules and typed stubs for messages and services, at the protos' own relative paths; ours are found unasked."""
    done = runner.invoke(
        app,
        ["generate", str(protos / "bakery.proto"), "bakery/v1/cake.proto", "-I", "protos", "--out", "made"],
    )
    assert done.exit_code == 0, done.stderr
    assert done.stdout.splitlines() == [
        "wrote made/bakery/v1/bakery_pb2.py",
        "wrote made/bakery/v1/bakery_pb2.pyi",
        "wrote made/bakery/v1/bakery_pb2_grpc.py",
        "wrote made/bakery/v1/bakery_pb2_grpc.pyi",
        "wrote made/bakery/v1/cake_pb2.py",
        "wrote made/bakery/v1/cake_pb2.pyi",
    ]
    assert "aio.ServicerContext" in (tmp_path / "made/bakery/v1/bakery_pb2_grpc.pyi").read_text("utf-8")
    used = subprocess.run([sys.executable, "-c", USE], cwd="made", check=False, capture_output=True, text=True)
    assert used.returncode == 0, used.stderr


@pytest.mark.parametrize(
    ("handlers", "lets"),
    [
        ("plain", "context: _grpc.ServicerContext,\n    ) -> _bakery_pb2.BakeResponse"),
        ("both", "-> _typing.Union[_bakery_pb2.BakeResponse, _abc.Awaitable[_bakery_pb2.BakeResponse]]"),
    ],
    ids=["plain", "both"],
)
def test_handlers_may_be_plain(protos: Path, runner: CliRunner, tmp_path: Path, handlers: str, lets: str) -> None:
    """Whoever writes `def` instead of `async def` gets stubs that let them."""
    done = runner.invoke(
        app, ["generate", str(protos / "bakery.proto"), "-I", "protos", "--out", "made", "--handlers", handlers]
    )
    assert done.exit_code == 0, done.stderr
    assert lets in (tmp_path / "made/bakery/v1/bakery_pb2_grpc.pyi").read_text("utf-8")


def test_the_working_directory_is_the_default_include_path(
    protos: Path, runner: CliRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without -I imports are relative to where the command runs, however the proto is spelled."""
    monkeypatch.chdir(protos.parent.parent)
    done = runner.invoke(app, ["generate", "./bakery/../bakery/v1/bakery.proto", "--out", "."])
    assert done.exit_code == 0, done.stderr
    assert (protos / "bakery_pb2.py").exists()


def refused(runner: CliRunner, *arguments: str) -> list[str]:
    """The lines of the error that the command ends with; nothing may have been written."""
    done = runner.invoke(app, ["generate", *arguments, "--out", "made"])
    assert (done.exit_code, done.stdout) == (1, "")
    assert not Path("made").exists()
    return done.stderr.splitlines()


def test_wrong_import_of_the_annotations(protos: Path, runner: CliRunner) -> None:
    """The path that is wrong and the one that is right."""
    proto = protos / "bakery.proto"
    proto.write_text(SERVICE.replace("amends/v1/annotations", "amends/annotations"), "utf-8")
    assert refused(runner, str(proto), "-I", "protos") == [
        f'{proto}:3:1: the import "amends/annotations.proto" is in no include folder (protos).',
        'amends\' own options are imported as "amends/v1/annotations.proto"; that one is always found.',
    ]


def test_an_import_that_is_not_found(protos: Path, runner: CliRunner) -> None:
    """-I is the way out."""
    (protos / "cake.proto").unlink()
    assert refused(runner, str(protos / "bakery.proto"), "-I", "protos") == [
        f'{protos / "bakery.proto"}:4:1: the import "bakery/v1/cake.proto" is in no include folder (protos).',
        "Name the folder that the import is relative to with -I.",
    ]


def test_annotations_used_without_their_import(protos: Path, runner: CliRunner) -> None:
    """The line that is missing."""
    proto = protos / "bakery.proto"
    proto.write_text(SERVICE.replace('import "amends/v1/annotations.proto";', ""), "utf-8")
    (line,) = refused(runner, str(proto), "-I", "protos")
    assert line.startswith(f"{proto}:10:")
    assert line.endswith(': the option (amends.v1.step) needs this line above: import "amends/v1/annotations.proto";')


def test_a_proto_outside_the_include_path(protos: Path, runner: CliRunner) -> None:
    """Which folder to name."""
    Path("elsewhere").mkdir()
    assert refused(runner, str(protos / "bakery.proto"), "-I", "elsewhere") == [
        f"{protos / 'bakery.proto'} is outside the include path (elsewhere).",
        "Name the folder that its imports are relative to with -I; the modules keep the path below it.",
    ]


@pytest.mark.usefixtures("protos")
def test_paths_that_do_not_exist(runner: CliRunner) -> None:
    """A missing proto and a missing include folder."""
    assert refused(runner, "nope.proto")[0] == "no such file: nope.proto"
    assert refused(runner, "nope.proto", "-I", "nowhere") == ["no such folder: nowhere (given with -I)"]


def test_what_protoc_itself_refuses(protos: Path, runner: CliRunner) -> None:
    """Any other mistake: protoc's own words and its exit code."""
    (protos / "cake.proto").write_text('syntax = "proto3";\nmessage Cake { int32 layers = ; }\n', "utf-8")
    lines = refused(runner, str(protos / "cake.proto"), "-I", "protos")
    assert any("cake.proto:2:31: " in line for line in lines)


def test_a_missing_plugin(protos: Path, runner: CliRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package to install."""
    monkeypatch.setattr(generate, "PLUGINS", ("protoc-gen-absent",))
    assert refused(runner, str(protos / "bakery.proto"), "-I", "protos") == [
        "the protoc plugin protoc-gen-absent is missing (the package mypy-protobuf): pip install 'amends[cli]'"
    ]


def test_a_place_that_cannot_be_written(protos: Path, runner: CliRunner) -> None:
    """A file where the folder should be."""
    Path("taken").write_text("", "utf-8")
    done = runner.invoke(app, ["generate", str(protos / "cake.proto"), "-I", "protos", "--out", "taken"])
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.startswith("can't write taken/bakery/v1/cake_pb2.py: ")


def test_include_directory_holds_the_annotations() -> None:
    """The folder for people who run protoc themselves."""
    assert (include_directory() / "amends" / "v1" / "annotations.proto").is_file()
