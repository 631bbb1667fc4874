"""Who uses the command line, and why: what the coordinator keeps in its audit."""

from __future__ import annotations

import getpass
from typing import Annotated

import typer

Reason = Annotated[
    str, typer.Option("--reason", metavar="TEXT", help="Why, in a few words; kept in the audit.", show_default=False)
]


def login_name() -> str:
    """The name of the account that runs this; a claim to the coordinator, nobody has proven it. Empty: unknown."""
    try:
        return getpass.getuser()[:128]
    except (KeyError, OSError, ImportError):
        return ""
