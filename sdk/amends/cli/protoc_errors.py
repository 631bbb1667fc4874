"""Explains what protoc says about mistakes that everybody makes once."""

from __future__ import annotations

import re
from collections.abc import Iterator

from amends.protos import ANNOTATIONS
from amends.v1.annotations_pb2 import StepOptions

OWN_IMPORT = ANNOTATIONS.as_posix()
MISSING_IMPORT = re.compile(
    r'^(?P<where>.+?:\d+:\d+): Import "(?P<name>[^"]+)" was not found or had errors\.', re.MULTILINE
)
NOT_FOUND = re.compile(r"^(?P<name>.+?): File not found\.", re.MULTILINE)
UNKNOWN_FIELD = re.compile(
    r'^(?P<where>.+?:\d+:\d+): .*"amends\.v1\.StepOptions" has no field named "(?P<name>[^"]+)"', re.MULTILINE
)
UNKNOWN_OPTION = re.compile(r'^(?P<where>.+?:\d+:\d+): Option "(?P<name>\(amends\.v1\.[^"]+)" unknown\.', re.MULTILINE)


def explain(said: str, searched: str) -> list[str]:
    """Lines for people in place of `said`, what protoc wrote; none if it is no classic mistake.

    Arguments:
        said: protoc's standard error.
        searched: the include folders that were given, as words.
    """
    return [*_missing_imports(said, searched), *_unknown_options(said), *_unknown_fields(said)]


def _missing_imports(said: str, searched: str) -> Iterator[str]:
    absent = {match["name"] for match in NOT_FOUND.finditer(said)}
    for match in MISSING_IMPORT.finditer(said):
        if match["name"] not in absent:
            continue
        yield f'{match["where"]}: the import "{match["name"]}" is in no include folder ({searched}).'
        if match["name"].endswith("annotations.proto") and not match["name"].startswith("google/"):
            yield f'amends\' own options are imported as "{OWN_IMPORT}"; that one is always found.'
        else:
            yield "Name the folder that the import is relative to with -I."


def _unknown_options(said: str) -> Iterator[str]:
    for match in UNKNOWN_OPTION.finditer(said):
        yield f'{match["where"]}: the option {match["name"]} needs this line above: import "{OWN_IMPORT}";'


def _unknown_fields(said: str) -> Iterator[str]:
    known = ", ".join(field.name for field in StepOptions.DESCRIPTOR.fields)
    for match in UNKNOWN_FIELD.finditer(said):
        yield f"{match['where']}: (amends.v1.step) has no field {match['name']!r}; it has: {known}."
