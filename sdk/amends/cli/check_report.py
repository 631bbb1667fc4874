"""What `check` found, for people and as data.

A line says one thing. Names and sentences come from whoever wrote the definition: they are printed as text, never as
markup.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING
from typing import Any as Json

from rich.console import Console
from rich.text import Text

from amends.cli.formats import cut
from amends.cli.show import BACKWARD, BAD, GOOD, QUIET

if TYPE_CHECKING:
    from amends.v1.saga_definition_pb2 import SagaDefinition
    from amends_coordinator.definitions.errors import Fault
    from amends_coordinator.definitions.outlook import CallOutlook, Outlook, StepOutlook

LONGEST_SENTENCE = 1_000
LABEL_WIDTH = 13
PLACE = re.compile(r"(?:steps|on_compensated)\[\d+\]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A definition with its faults, or with what it will do. `source` says where it stands."""

    source: str
    name: str
    definition: SagaDefinition | None
    faults: tuple[Fault, ...] = ()
    outlook: Outlook | None = None

    @property
    def version(self) -> str:
        """The version that it has or would have; empty where it has faults."""
        return self.outlook.version if self.outlook is not None else ""

    @property
    def warnings(self) -> tuple[Fault, ...]:
        """What its author should know."""
        return self.outlook.warnings if self.outlook is not None else ()

    @property
    def lacks_types(self) -> bool:
        """Whether it carries no types at all, and a fault says so."""
        return bool(self.faults) and self.definition is not None and not self.definition.descriptors.file

    def step_at(self, path: str) -> str:
        """The name of the step that a path leads into; empty where it leads into none."""
        found = PLACE.match(path)
        return step_names(self.definition).get(found[0], "") if found and self.definition is not None else ""


def step_names(definition: SagaDefinition) -> Mapping[str, str]:
    """The names of a definition's steps by their place, for example "steps[0]"."""
    lists = {"steps": definition.steps, "on_compensated": definition.on_compensated}
    return {f"{path}[{index}]": step.name for path, steps in lists.items() for index, step in enumerate(steps)}


def as_json(checked: Checked) -> dict[str, Json]:
    """Everything that was found, as data."""
    found: dict[str, Json] = {
        "source": checked.source,
        "name": checked.name,
        "faults": _listed(checked, checked.faults),
    }
    if checked.outlook is not None:
        found |= asdict(checked.outlook)
        found["warnings"] = _listed(checked, checked.warnings)
    return found


def _listed(checked: Checked, faults: tuple[Fault, ...]) -> list[dict[str, str]]:
    return [{"path": each.path, "step": checked.step_at(each.path), "description": each.description} for each in faults]


def print_report(checked: Checked, output: Console) -> None:
    """Print what was found of one definition."""
    for line in (*_headline(checked), *_lines(checked), Text()):
        output.print(line, soft_wrap=True)


def _headline(checked: Checked) -> Iterator[Text]:
    line = Text(cut(checked.name) or "a saga", "bold").append(": ", "not bold")
    if checked.outlook is None:
        line.append(_counted(len(checked.faults), "fault"), BAD)
    else:
        line.append("fine", GOOD).append(f", version {checked.outlook.version}")
        if checked.warnings:
            line.append(f", {_counted(len(checked.warnings), 'warning')}", BACKWARD)
    yield line.append(f"  ({cut(checked.source)})", QUIET)


def _lines(checked: Checked) -> Iterator[Text]:
    for fault in checked.faults:
        yield _sentence(checked, fault, "", "")
    if checked.outlook is None:
        return
    for warning in checked.warnings:
        yield _sentence(checked, warning, "warning: ", BACKWARD)
    yield from _steps(checked.outlook)


def _steps(outlook: Outlook) -> Iterator[Text]:
    takes = f"takes a {outlook.input_type}; rolls back by itself if its point of no return isn't passed in"
    yield Text(f"  {takes} {outlook.timeout}", QUIET)
    for step in outlook.steps:
        yield from _step(step, step.kind.lower().replace("_", "-"))
    for step in outlook.on_compensated:
        yield from _step(step, "once the saga is compensated")
    if outlook.output_type:
        yield Text.assemble("  ", ("output", "bold"), f", a {outlook.output_type}")
        yield from (Text(f"      {field}") for field in outlook.output)


def _step(step: StepOutlook, kind: str) -> Iterator[Text]:
    waits = f"after {', '.join(step.after)}" if step.after else "at once"
    yield Text.assemble("  ", (step.name, "bold"), f", {kind}, {waits}")
    for label, call in (("action", step.action), ("undo", step.compensation), ("lookup", step.lookup)):
        yield from _call(label, call)
    yield _labelled("key", step.key)
    yield _labelled("served by", step.participant)
    for index, sentence in enumerate(step.when_unknown):
        yield _labelled("" if index else "if unknown", sentence)


def _call(label: str, call: CallOutlook | None) -> Iterator[Text]:
    if call is None:
        yield _labelled(label, "none")
        return
    yield _labelled(label, call.method)
    for field in call.fields:
        yield _labelled("", f"  {field}")


def _labelled(label: str, text: str) -> Text:
    return Text.assemble("    ", (label.ljust(LABEL_WIDTH), QUIET), cut(text, LONGEST_SENTENCE))


def _sentence(checked: Checked, fault: Fault, word: str, style: str) -> Text:
    name = checked.step_at(fault.path)
    place = f"{fault.path} (step {cut(name)})" if name else fault.path
    where = f"{place}: " if place else ""
    return Text.assemble("  ", (word, style), where, cut(fault.description, LONGEST_SENTENCE))


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
