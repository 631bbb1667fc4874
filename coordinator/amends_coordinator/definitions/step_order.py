"""The order of a definition's steps: names, kinds, what follows what."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from amends.v1 import saga_definition_pb2 as pb
from amends_coordinator.definitions.errors import quote

if TYPE_CHECKING:
    from collections.abc import Sequence

    from amends_coordinator.definitions.errors import FaultList

STEP_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
PARTICIPANT_NAME = re.compile(r"[a-z][a-z0-9_-]{0,63}")
MOST_STEPS = 64
BEHIND = (pb.STEP_KIND_PIVOT, pb.STEP_KIND_RETRIABLE)


def fill_order(steps: Sequence[pb.Step], faults: FaultList) -> None:
    """Check the steps' names and their order, and fill in `kind` and `after`."""
    if not steps:
        faults.add("steps", "there are none; a saga has 1 to 64 steps")
    if len(steps) > MOST_STEPS:
        faults.add("steps", f"{len(steps)} are too many; a saga has 1 to 64 steps")
    first_use: dict[str, int] = {}
    for index, step in enumerate(steps):
        path = f"steps[{index}]"
        _check_name(step.name, path, first_use.setdefault(step.name, index), index, faults)
        _fill_kind(step, path, faults)
        if step.participant and not PARTICIPANT_NAME.fullmatch(step.participant):
            faults.add(f"{path}.participant", f"{quote(step.participant)} is no name; write [a-z][a-z0-9_-]{{0,63}}")
    for index in range(len(steps)):
        _fill_after(steps, index, first_use, faults)
    _check_kinds(steps, faults)


def is_behind_point_of_no_return(steps: Sequence[pb.Step], index: int) -> bool:
    """Whether the step is never rejected: it is retriable, or read-only behind the pivot or a retriable step."""
    kind = steps[index].kind
    follows = any(step.kind in BEHIND for step in steps[:index])
    return kind == pb.STEP_KIND_RETRIABLE or (kind == pb.STEP_KIND_READ_ONLY and follows)


def _check_name(name: str, path: str, first_index: int, index: int, faults: FaultList) -> None:
    if not STEP_NAME.fullmatch(name):
        faults.add(f"{path}.name", f"{quote(name)} is no step name; write [a-z][a-z0-9_]{{0,63}}")
    elif first_index != index:
        faults.add(f"{path}.name", f"steps[{first_index}] is called {name} too; names are unique, choose another")


def _fill_kind(step: pb.Step, path: str, faults: FaultList) -> None:
    if step.kind == pb.STEP_KIND_UNSPECIFIED:
        step.kind = pb.STEP_KIND_COMPENSATABLE
    elif step.kind not in pb.StepKind.values():
        faults.add(f"{path}.kind", f"{int(step.kind)} is no kind that this release knows; choose one of StepKind")


def _fill_after(steps: Sequence[pb.Step], index: int, first_use: dict[str, int], faults: FaultList) -> None:
    step, path = steps[index], f"steps[{index}].after"
    before = [steps[index - 1].name] if index else []
    if not step.after:
        step.after.extend(before)
        return
    for position, name in enumerate(step.after):
        where = first_use.get(name)
        if where is None:
            faults.add(f"{path}[{position}]", f"there is no step {quote(name)}; name the step before this one")
        elif where >= index:
            what = "the step itself" if where == index else "a later step"
            faults.add(
                f"{path}[{position}]", f"{name} is {what}, so neither could ever begin; name the step before this one"
            )
    if list(step.after) != before:
        wanted = f"exactly {before[0]!r}" if before else "empty for the first step"
        faults.add(path, f"steps side by side are not yet supported: it must be {wanted}, or left out")


def _check_kinds(steps: Sequence[pb.Step], faults: FaultList) -> None:
    """Compensatable or read-only steps, at most one pivot, then retriable or read-only ones."""
    behind: pb.Step | None = None
    for index, step in enumerate(steps):
        path = f"steps[{index}].kind"
        if behind is not None and step.kind == pb.STEP_KIND_PIVOT:
            if behind.kind == pb.STEP_KIND_PIVOT:
                faults.add(
                    path, f"{quote(behind.name)} is the pivot already; a saga has at most one, make this one retriable"
                )
            else:
                faults.add(
                    path,
                    f"the pivot comes before every retriable step, but {quote(behind.name)} precedes it; move it up",
                )
        elif behind is not None and step.kind == pb.STEP_KIND_COMPENSATABLE:
            faults.add(
                path,
                f"behind the point of no return ({quote(behind.name)}) nothing is undone;"
                " move this step before it, or make it retriable or read-only",
            )
        if step.kind in BEHIND and (behind is None or step.kind == pb.STEP_KIND_PIVOT):
            behind = step
