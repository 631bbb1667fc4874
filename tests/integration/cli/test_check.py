"""`amends check` on Python modules and on definition files: faults, warnings, and what each step does when in doubt."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf import json_format
from typer.testing import CliRunner, Result

from amends.cli.app import app
from tests.unit.definitions.samples import ANNOUNCED, PACKAGE, SERVICE, TRIP, definition

HEAD = """\
from datetime import timedelta
from amends import Guarantee, Retry, Saga, method
from definitions_test.v1.lodging_pb2 import *
from definitions_test.v1.lodging_pb2_grpc import LodgingServiceServicer as Lodging

Book = method(Lodging.Book, BookRequest, BookResponse)
Cancel = method(Lodging.Cancel, CancelRequest, CancelResponse)
Hold = method(Lodging.Hold, HoldRequest, HoldResponse)
Free = method(Lodging.Free, FreeRequest, FreeResponse)
Pay = method(Lodging.Pay, PayRequest, PayResponse)
Close = method(Lodging.Close, CloseRequest, CloseResponse)
trip = Saga("trip", input=Trip, timeout=timedelta(minutes=2))
i = trip.input
"""
UNSEALED = (
    "steps[1].guarantee (step pay): Pay has neither a barrier nor a lookup that seals, so if it doesn't answer a person"
    " has to find out whether it happened; serve it with the barrier (GUARANTEE_BARRIER), best with a lookup"
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory; what a command adds to the import path is taken out again."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path


def check(runner: CliRunner, *arguments: str) -> Result:
    """Run the command."""
    return runner.invoke(app, ["check", *arguments])


def test_a_sound_saga_is_shown_step_by_step(folder: Path, runner: CliRunner) -> None:
    """Per step: the calls and where their fields come from, key use, who serves it, and what happens in doubt."""
    (folder / "trips.py").write_text(
        HEAD
        + """
hold = trip.step("hold", Hold(guest=i.guest), idempotency_window=timedelta(hours=1))
hold.compensated_by(Free(hold_id=hold.response.hold_id, reason=trip.failure.message))
pay = trip.pivot("pay", Pay(booking_id=hold.response.hold_id, key_uuid="fixed"), after=(hold,), at_most_once=True)
trip.on_compensated("sorry", Pay(booking_id=trip.id), participant="desk")
"""
    )
    done = check(runner, "trips.py")
    assert (done.exit_code, done.stderr) == (0, "")
    version = done.stdout.partition("version ")[2][:16]
    assert (
        done.stdout
        == f"""\
trip: fine, version {version}, 1 warning  (trips.py:trip)
  warning: {UNSEALED}
  takes a definitions_test.v1.Trip; rolls back by itself if its point of no return isn't passed in 120 s
  hold, compensatable, at once
    action       definitions_test.v1.LodgingService/Hold
                   guest = input.guest
    undo         definitions_test.v1.LodgingService/Free
                   hold_id = hold.response.hold_id
                   reason = failure.message
    lookup       definitions_test.v1.LodgingService/FindHold
                   guest = hold.request.guest
    key          BARRIER: once per key, remembered for 1 h; an action that comes after its compensation is refused
    served by    the one that serves definitions_test.v1.LodgingService
    if unknown   repeated with the same key for 30 s of trying, at most 1 h after the first call
                 then FindHold is asked, for 1 h: OK says that it happened, a sealed NOT_FOUND that it never will
                 else undone as if it had happened, and the saga rolls back: Free finds it by the action's key
  pay, pivot, after hold
    action       definitions_test.v1.LodgingService/Pay
                   booking_id = hold.response.hold_id
                   key_uuid = "fixed"
    undo         none
    lookup       none
    key          KEY: once per key
    served by    the one that serves definitions_test.v1.LodgingService
    if unknown   not repeated: it is to be called at most once
                 else parked for a person, never guessed; the saga stays RUNNING
  sorry, once the saga is compensated, at once
    action       definitions_test.v1.LodgingService/Pay
                   booking_id = saga.id
    undo         none
    lookup       none
    key          KEY: once per key
    served by    desk
    if unknown   repeated with the same key for 1 h of trying
                 else parked for a person; the saga stays COMPENSATED

"""
    )


def test_warnings_count_if_they_are_to(folder: Path, runner: CliRunner) -> None:
    """Exit code for CI: 0 with warnings, 1 with `--strict`."""
    (folder / "warned.py").write_text(HEAD + 'trip.pivot("pay", Pay())\n')
    assert check(runner, "warned.py").exit_code == 0
    assert check(runner, "warned.py", "--strict").exit_code == 1
    (folder / "safe.py").write_text(HEAD + 'trip.pivot("pay", Pay(), guarantee=Guarantee.BARRIER)\n')
    assert check(runner, "safe.py", "--strict").exit_code == 0


def test_every_fault_of_registration_with_its_step(folder: Path, runner: CliRunner) -> None:
    """The same faults as at a coordinator, each with its path and the name of its step."""
    (folder / "bad.py").write_text(
        HEAD
        + """
trip.step("book", Book(guest=i.guest)).compensated_by(Free())
trip.step("astray", method(Lodging.Astray, AstrayRequest, PayResponse)())
"""
    )
    done = check(runner, "bad.py")
    assert done.exit_code == 1
    head, *faults = done.stdout.splitlines()
    assert head == "trip: 2 faults  (bad.py:trip)"
    assert [line.partition(": ")[0] for line in faults if line] == [
        "  steps[0].compensation.request (step book)",
        "  steps[1].compensation.method (step astray)",
    ]
    assert "(named by the annotation of definitions_test.v1.LodgingService/Astray)" in faults[1]


@pytest.mark.parametrize(
    ("line", "where", "said"),
    [
        ('trip.step("book", Book(guest=i.gest))', ":14", "has no field 'gest': did you mean 'guest'?"),
        ('trip.step("pay", Pay())', ":trip", "step 'pay' can't be undone; call compensated_by(...)"),
        ("Saga('x', input=str)", ":14", "pass a generated message class"),
    ],
    ids=["field", "undo", "input"],
)
def test_what_the_builder_refuses_is_a_fault_too(
    folder: Path, runner: CliRunner, line: str, where: str, said: str
) -> None:
    """A description that can't be built is told with its line, in the builder's words."""
    (folder / "wrong.py").write_text(f"{HEAD}{line}\n")
    done = check(runner, "wrong.py")
    assert (done.exit_code, done.stderr) == (1, "")
    assert f"1 fault  (wrong.py{where})" in done.stdout
    assert said in done.stdout


WITHOUT_COORDINATOR = """\
import sys
for module in ("alembic", "psycopg", "pydantic_settings", "sqlalchemy", "structlog"):
    sys.modules[module] = None
sys.argv = ["amends", "check", "sound.py"]
from amends.cli import main
sys.exit(main())
"""


def test_nothing_of_a_coordinator_has_to_be_installed(folder: Path) -> None:
    """The checks need protobuf and no more, so a pipeline can do with `amends[cli]`."""
    (folder / "sound.py").write_text(HEAD + 'trip.pivot("pay", Pay())\n')
    done = subprocess.run([sys.executable, "-c", WITHOUT_COORDINATOR], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_one_saga_of_several_and_none_twice(folder: Path, runner: CliRunner) -> None:
    """`module:name` chooses; a saga that stands in two targets is checked once."""
    (folder / "two.py").write_text(
        HEAD
        + """
trip.pivot("pay", Pay())
alias = trip
rest = Saga("rest", input=Trip)
rest.read_only("pay", Pay())
print("what a module prints stands in no report")
"""
    )

    def names(*targets: str) -> list[str]:
        shown = json.loads(check(runner, *targets, "--json").stdout)
        return [f"{each['source']} {each['name']}" for each in shown["definitions"]]

    assert names("two.py") == ["two.py:trip trip", "two.py:rest rest"]
    assert names("two.py:rest") == ["two.py:rest rest"]
    assert names("two.py:alias", "two.py:rest") == ["two.py:alias trip", "two.py:rest rest"]


def test_json_is_all_there_is_on_stdout(folder: Path) -> None:
    """A script reads the report also where imported code writes past Python's own stdout: C code, another process."""
    (folder / "loud.py").write_text(
        HEAD
        + """
import ctypes, os, subprocess, sys
os.write(1, b"written ")
subprocess.run(["echo", "called"], check=True)
sys.__stdout__.write("kept back ")
ctypes.CDLL(None).printf(b"buffered ")
trip.pivot("pay", Pay())
"""
    )
    command = [sys.executable, "-m", "amends.cli", "check", "loud.py", "--json"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert [each["name"] for each in json.loads(done.stdout)["definitions"]] == ["trip"]
    assert all(word in done.stderr for word in ("written", "called", "kept back", "buffered"))


def test_a_module_of_a_package_is_imported_as_its_program_does(folder: Path, runner: CliRunner) -> None:
    """By name from the working directory, or by path: relative imports work, and so do modules beside it."""
    package = folder / "agency_to_check"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "base.py").write_text(HEAD)
    (package / "sagas.py").write_text('from .base import Pay, trip\ntrip.pivot("pay", Pay())\n')
    assert check(runner, "agency_to_check.sagas").exit_code == 0
    assert check(runner, "agency_to_check/sagas.py").exit_code == 0
    (folder / "beside_it.py").write_text(HEAD)
    (folder / "program.py").write_text('from beside_it import Pay, trip\ntrip.pivot("pay", Pay())\n')
    assert check(runner, str(folder / "program.py")).exit_code == 0


@pytest.mark.parametrize(
    ("target", "content", "said"),
    [
        ("gone.py", None, "no such file: gone.py"),
        ("gone.json", None, "can't read gone.json: No such file or directory"),
        ("gone_to_check", None, "no module 'gone_to_check'"),
        ("empty.py", "", "empty.py: there is no amends.Saga at module level."),
        ("named.py:other", HEAD, "'other' is no amends.Saga; the module has: trip."),
        ("syntax.py", "def (", "syntax.py can't be imported: invalid syntax (syntax.py, line 1)"),
        ("needs.py", "\nimport not_there", "needs.py can't be imported: it needs the module 'not_there'"),
        ("crash.py", "\n1 / 0", "crash.py:2 can't be imported: ZeroDivisionError: division by zero"),
        ("ends.py", "exit(3)", 'belongs under `if __name__ == "__main__":`'),
        (".", None, "Name a file in it, or a module: path/to/module.py or package.module."),
        ("", None, "Name a file in it, or a module: path/to/module.py or package.module."),
        ("relative.py", "from . import base", "Name it as its program imports it: package.module"),
        ("misses.py", "\nfrom json import nothing", "misses.py:2 can't be imported: cannot import name 'nothing'"),
        ("no.json", "{", "no.json is no JSON: "),
        ("list.json", "[]", "list.json must be a JSON object with the fields of amends.v1.SagaDefinition."),
        ("odd.json", '{"steps": [{"nme": "a"}]}', "odd.json: steps.nme is no field of amends.v1.Step."),
    ],
)
def test_a_target_that_cannot_be_used(
    folder: Path, runner: CliRunner, target: str, content: str | None, said: str
) -> None:
    """Exit code 2, one or two sentences, never a traceback."""
    if content is not None:
        (folder / target.partition(":")[0]).write_text(content)
    done = check(runner, target)
    assert (done.exit_code, done.stdout) == (2, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_no_line_of_another_file_is_named(folder: Path, runner: CliRunner) -> None:
    """Where an error came up elsewhere, the target's line that led there is told, not the number of another file's."""
    broken = folder / "broken_to_check"
    broken.mkdir()
    (broken / "__init__.py").write_text("\n" * 40 + "1 / 0")
    (folder / "innocent.py").write_text("\n\nimport broken_to_check")
    for target in ("innocent.py", "innocent"):
        assert check(runner, target).stderr.startswith(f"{target}:3 can't be imported: ZeroDivisionError")


def test_an_object_that_is_what_it_is_only_later_stays_asleep(folder: Path, runner: CliRunner) -> None:
    """Lazy objects, like the settings of a web framework, load when they are asked for their class: they aren't."""
    lazy = "class Lazy:\n    __class__ = property(lambda self: 1 / 0)\nsettings = Lazy()\n"
    (folder / "lazy_to_check.py").write_text(f'{HEAD}{lazy}trip.pivot("pay", Pay())\n')
    assert check(runner, "lazy_to_check.py").exit_code == 0


def definition_file(folder: Path, text: str = TRIP, *, carries_types: bool = False) -> str:
    """A definition as JSON, as another language's tool would write it."""
    written = definition(text)
    if carries_types:
        written.descriptors.CopyFrom(ANNOUNCED)
    (folder / "trip.json").write_text(json_format.MessageToJson(written))
    return "trip.json"


def test_a_definition_file_that_carries_its_types(folder: Path, runner: CliRunner) -> None:
    """The proto's JSON of a definition is checked like a module."""
    done = check(runner, definition_file(folder, carries_types=True))
    assert (done.exit_code, done.stdout.splitlines()[0][:20]) == (0, "trip: fine, version ")
    assert "(trip.json)" in done.stdout


def test_types_from_a_descriptor_set(folder: Path, runner: CliRunner) -> None:
    """A file without types takes them from `--descriptors`; without that, the fault says what is missing."""
    target = definition_file(folder)
    (folder / "types.binpb").write_bytes(ANNOUNCED.SerializeToString())
    assert check(runner, target, "--descriptors", "types.binpb").exit_code == 0
    done = check(runner, target)
    assert done.exit_code == 1
    assert f"input_type: no message type '{PACKAGE}.Trip' in the descriptors" in done.stdout
    assert done.stderr.endswith("come from --descriptors FILE or --proto FILE.\n")
    (folder / "types.binpb").write_bytes(b"\xff")
    assert "types.binpb is no descriptor set." in check(runner, target, "--descriptors", "types.binpb").stderr


def test_types_from_protos(folder: Path, runner: CliRunner) -> None:
    """Types from `--proto`, with our own annotations found unasked; the version is that of the generated code."""
    protos = Path(__file__).parents[2] / "protos"
    types = ("--proto", "definitions_test/v1/lodging.proto", "-I", str(protos), "--json")
    (by_proto,) = json.loads(check(runner, definition_file(folder), *types).stdout)["definitions"]
    (by_code,) = json.loads(check(runner, definition_file(folder, carries_types=True), "--json").stdout)["definitions"]
    assert by_proto["version"] == by_code["version"]
    missing = check(runner, "trip.json", "--proto", "gone.proto")
    assert (missing.exit_code, missing.stderr.splitlines()[0]) == (1, "no such file: gone.proto")


def test_literals_of_a_definition_file(folder: Path, runner: CliRunner) -> None:
    """Literals are written as fields of their message; where its type is missing, that is said."""
    written = json.loads(json_format.MessageToJson(definition(TRIP)))
    request = {"@type": f"type.googleapis.com/{PACKAGE}.EverythingRequest", "key": "fixed", "price": {"units": 7}}
    written["steps"][2]["action"]["request"] = {"literals": request}
    (folder / "trip.json").write_text(json.dumps(written))
    (folder / "types.binpb").write_bytes(ANNOUNCED.SerializeToString())
    done = check(runner, "trip.json", "--descriptors", "types.binpb")
    assert done.exit_code == 0
    assert '                   key = "fixed"\n                   price = {"units": "7"}\n' in done.stdout
    bare = check(runner, "trip.json")
    assert bare.exit_code == 2
    assert "Literals need their type: " in bare.stderr


def test_faults_as_data(folder: Path, runner: CliRunner) -> None:
    """`--json` has everything: faults with path and step, or the steps and the warnings."""
    text = TRIP.replace(f"{SERVICE}/Pay", f"{SERVICE}/Pya")
    (bad,) = json.loads(check(runner, definition_file(folder, text, carries_types=True), "--json").stdout)[
        "definitions"
    ]
    assert (bad["source"], bad["name"], "steps" in bad) == ("trip.json", "trip", False)
    assert [(each["path"], each["step"]) for each in bad["faults"]] == [("steps[1].action.method", "pay")]
    (good,) = json.loads(check(runner, definition_file(folder, carries_types=True), "--json").stdout)["definitions"]
    assert (good["faults"], [each["step"] for each in good["warnings"]]) == ([], ["book", "pay"])
    assert [each["kind"] for each in good["steps"]] == ["COMPENSATABLE", "PIVOT", "RETRIABLE"]
