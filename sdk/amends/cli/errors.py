"""Errors of the command line: a sentence or two on standard error and exit code 1, never a traceback."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

USAGE = 2
"""Exit code of a command that was given what it can't use."""


class CommandError(Exception):
    """A command can't do what it was asked to. Its lines say what is wrong, where, and what to do now."""

    def __init__(self, *lines: str, exit_code: int = 1) -> None:
        super().__init__("\n".join(lines))
        self.exit_code = exit_code


class PlainErrors(TyperGroup):
    """A group of commands that prints a `CommandError` as plain lines."""

    # The context's class belongs to click, which typer ships inside itself or imports, depending on its release.
    def invoke(self, ctx: Any) -> Any:
        """Carry out the command that was chosen."""
        try:
            return super().invoke(ctx)
        except CommandError as error:
            typer.echo(str(error), err=True)
            raise typer.Exit(error.exit_code) from error
