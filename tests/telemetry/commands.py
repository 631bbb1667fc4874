"""Runs commands of `amends` in a process of their own, one after the other: a list in, what each said out, as JSON."""

from __future__ import annotations

import json
import sys

from typer.testing import CliRunner

from amends.cli.app import app


def main() -> None:
    """Read the lists of arguments, run them, and write exit codes and outputs."""
    runs = [CliRunner().invoke(app, arguments) for arguments in json.load(sys.stdin)]
    json.dump([[run.exit_code, run.output] for run in runs], sys.stdout)


if __name__ == "__main__":
    main()
