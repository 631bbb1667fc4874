"""The entrance `amends.cli:main` as a process: extras that are missing, and what is loaded only when it is needed."""

from __future__ import annotations

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from amends.cli.app import app

WITHOUT = """\
import sys
sys.modules[{module!r}] = None
sys.argv = {argv!r}
from amends.cli import main
sys.exit(main())
"""
LOADED = """\
import sys
from amends.cli import main
early = {"typer", "rich", "amends_coordinator"} & set(sys.modules)
sys.argv = ["amends", "version"]
assert main() == 0
unasked = {"amends_coordinator", "sqlalchemy", "pydantic_settings"} & set(sys.modules)
sys.exit(f"{early} {unasked}" if early or unasked else 0)
"""


def python(program: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a process of its own."""
    return subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True)


@pytest.mark.parametrize("module", ["typer", "rich"])
def test_without_the_cli_extra(module: str) -> None:
    """Plain amends has the script but not its libraries: one sentence and exit 1."""
    done = python(WITHOUT.format(module=module, argv=["amends", "version"]))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "the command line needs its extra: pip install 'amends[cli]'\n"


def test_little_is_loaded() -> None:
    """The entrance loads neither typer nor rich, and a small command not the coordinator."""
    done = python(LOADED)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("amends ")


@pytest.mark.parametrize("group", [[], ["saga"], ["definition"], ["participant"], ["deadletter"]])
def test_a_list_of_commands_cuts_nothing_off(runner: CliRunner, group: list[str]) -> None:
    """What each command does is told whole, in 80 columns."""
    done = runner.invoke(app, [*group, "--help"], env={"COLUMNS": "80"})
    assert done.exit_code == 0
    assert "..." not in done.stdout.partition("Commands:")[2]


def test_the_version_is_told_as_programs_do(runner: CliRunner) -> None:
    """`--version`, where most people look for it, says what `version` says."""
    asked = runner.invoke(app, ["--version"])
    assert (asked.exit_code, asked.stdout) == (0, runner.invoke(app, ["version"]).stdout)
    assert asked.stdout.startswith("amends")
