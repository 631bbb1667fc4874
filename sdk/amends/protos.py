"""Finds amends' own protos, so that protoc can be told where `amends/v1/annotations.proto` is."""

from __future__ import annotations

from pathlib import Path

ANNOTATIONS = Path("amends", "v1", "annotations.proto")


def include_directory() -> Path:
    """The folder to hand to protoc with -I: inside an installed wheel, else in the checkout.

    Raises:
        FileNotFoundError: neither holds the protos; install amends again.
    """
    package = Path(__file__).resolve().parent
    for folder in (package / "include", package.parent.parent / "proto"):
        if (folder / ANNOTATIONS).is_file():
            return folder
    raise FileNotFoundError(f"{ANNOTATIONS.as_posix()} is missing beside {package}: install amends again")
