"""The command `check`: the checks of registration, without a coordinator, and what each step will do when in doubt."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from amends.cli.check_report import Checked, as_json, print_report
from amends.cli.definition_files import Descriptors, Includes, Protos, described_types
from amends.cli.show import console
from amends.cli.targets import Candidate, candidates

if TYPE_CHECKING:
    from amends.v1.saga_definition_pb2 import SagaDefinition

Targets = Annotated[
    list[str],
    typer.Argument(
        metavar="TARGET",
        help="A module (shop.saga), a file (shop/saga.py), one saga of it (shop.saga:order), or a definition (x.json).",
        show_default=False,
    ),
]


def check(
    targets: Targets,
    descriptors: Descriptors = None,
    proto: Protos = None,
    include: Includes = None,
    strict: Annotated[bool, typer.Option("--strict", help="Warnings count as faults.")] = False,
    as_data: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check saga definitions as registration does, and say what each step does when nobody knows what happened.

    Needs no coordinator. Exits with 0 if all is well, 1 if there are faults, 2 if a target can't be used.
    """
    found = [checked(each) for each in candidates(targets, described_types(descriptors, proto, include))]
    if as_data:
        typer.echo(json.dumps({"definitions": [as_json(each) for each in found]}, indent=2, ensure_ascii=False))
    else:
        output = console()
        for each in found:
            print_report(each, output)
    if any(each.source.endswith(".json") and each.lacks_types for each in found):
        typer.echo("Types that a definition file doesn't carry come from --descriptors FILE or --proto FILE.", err=True)
    raise typer.Exit(int(any(each.faults or (strict and each.warnings) for each in found)))


def checked(candidate: Candidate) -> Checked:
    """What registration would say of a definition, and what it will do."""
    # Here and below: the other commands load nothing of the coordinator.
    from amends_coordinator.definitions.errors import Fault

    if candidate.definition is None:
        faults = (Fault("", candidate.fault),)
        return Checked(source=candidate.source, name=candidate.name, definition=None, faults=faults)
    return checked_definition(candidate.definition, candidate.source)


def checked_definition(definition: SagaDefinition, source: str) -> Checked:
    """The same for a definition in hand."""
    from amends_coordinator.definitions.outlook import outlook_of
    from amends_coordinator.definitions.registration import InvalidDefinitionError, resolve

    name = definition.name
    try:
        resolved = resolve(definition)
    except InvalidDefinitionError as error:
        return Checked(source=source, name=name, definition=definition, faults=error.faults)
    return Checked(source=source, name=name, definition=definition, outlook=outlook_of(resolved))
