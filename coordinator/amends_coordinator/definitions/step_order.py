"""The order of a definition's steps: names, kinds, what follows what, and what may stand where.

Whatever can be refused has to be over before the point of no return is passed. So each such step precedes the pivot
through `after` (without a pivot: every retriable step), and everything else follows it: nothing runs beside a pivot.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from amends.v1 import saga_definition_pb2 as pb
from amends_coordinator.definitions.errors import choices, did_you_mean, quote

if TYPE_CHECKING:
    from collections.abc import Sequence

    from amends_coordinator.definitions.errors import FaultList

STEP_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
PARTICIPANT_NAME = re.compile(r"[a-z][a-z0-9_-]{0,63}")
MOST_STEPS = 64


@dataclass(frozen=True, slots=True)
class Listed:
    """Steps of one list ("steps" or "on_compensated"), and for each the indices of all that it follows."""

    path: str
    steps: Sequence[pb.Step]
    ancestors: tuple[frozenset[int], ...]

    def names_before(self, index: int) -> frozenset[str]:
        """Names of the steps that certainly have succeeded when this one begins."""
        return frozenset(self.steps[each].name for each in self.ancestors[index])


@dataclass(frozen=True, slots=True)
class StepOrder:
    """What follows what in both lists of a definition."""

    steps: Listed
    on_compensated: Listed

    def is_forward_only(self, index: int) -> bool:
        """Whether one of `steps` is never rejected: it is retriable, or read-only behind the pivot or a retriable
        step.
        """
        kind = self.steps.steps[index].kind
        points = _of_kind(self.steps.steps, pb.STEP_KIND_PIVOT) + _of_kind(self.steps.steps, pb.STEP_KIND_RETRIABLE)
        follows = not self.steps.ancestors[index].isdisjoint(points)
        return kind == pb.STEP_KIND_RETRIABLE or (kind == pb.STEP_KIND_READ_ONLY and follows)


def fill_order(definition: pb.SagaDefinition, faults: FaultList) -> StepOrder:
    """Check the steps' names and their order, and fill in `kind` and `after`."""
    count = len(definition.steps) + len(definition.on_compensated)
    if not definition.steps:
        faults.add("steps", "there are none; a saga has 1 to 64 steps")
    if count > MOST_STEPS:
        also = ", those of on_compensated included" if definition.on_compensated else ""
        faults.add("steps", f"{count} are too many; a saga has 1 to 64 steps{also}")
    first_use: dict[str, str] = {}
    for path, steps in (("steps", definition.steps), ("on_compensated", definition.on_compensated)):
        for index, step in enumerate(steps):
            _check_names(step, f"{path}[{index}]", first_use, faults)
    for index, step in enumerate(definition.steps):
        _fill_kind(step, f"steps[{index}].kind", faults)
    for index, step in enumerate(definition.on_compensated):
        _fill_kind_of_follower(step, f"on_compensated[{index}].kind", faults)
    order = StepOrder(
        steps=_fill_list("steps", definition.steps, first_use, faults),
        on_compensated=_fill_list("on_compensated", definition.on_compensated, first_use, faults),
    )
    _check_kinds(order.steps, faults)
    return order


def _check_names(step: pb.Step, path: str, first_use: dict[str, str], faults: FaultList) -> None:
    first = first_use.setdefault(step.name, path)
    if not STEP_NAME.fullmatch(step.name):
        faults.add(
            f"{path}.name",
            f"{quote(step.name)} is no name of a step; write at most 64 small letters, digits and _, beginning with a"
            " letter",
        )
    elif first != path:
        faults.add(f"{path}.name", f"{first} is called {step.name} too; names are unique, choose another")
    if step.participant and not PARTICIPANT_NAME.fullmatch(step.participant):
        faults.add(
            f"{path}.participant",
            f"{quote(step.participant)} is no name of a participant; write at most 64 small letters, digits, _ and -,"
            " beginning with a letter",
        )


def _fill_kind(step: pb.Step, path: str, faults: FaultList) -> None:
    if step.kind == pb.STEP_KIND_UNSPECIFIED:
        step.kind = pb.STEP_KIND_COMPENSATABLE
    elif step.kind not in pb.StepKind.values():
        known = choices("STEP_KIND_", dict(pb.StepKind.items()))
        faults.add(path, f"{int(step.kind)} is no kind that this release knows; choose one of {known}")


def _fill_kind_of_follower(step: pb.Step, path: str, faults: FaultList) -> None:
    """A step that begins once the saga is compensated has nothing behind it that could be rolled back."""
    if step.kind not in (pb.STEP_KIND_UNSPECIFIED, pb.STEP_KIND_RETRIABLE):
        faults.add(path, "steps of on_compensated are repeated like retriable ones; leave the kind out")
    step.kind = pb.STEP_KIND_RETRIABLE


def _fill_list(path: str, steps: Sequence[pb.Step], first_use: dict[str, str], faults: FaultList) -> Listed:
    """Fill in `after` of every step of a list, in list order and each name once."""
    places: dict[str, int] = {}
    ancestors: list[frozenset[int]] = []
    followed: set[int] = set()
    for index, step in enumerate(steps):
        places.setdefault(step.name, index)
    for index, step in enumerate(steps):
        direct = _direct(step, index, places, first_use, f"{path}[{index}]", faults)
        if direct is None:
            direct = set(range(index)) - followed
        followed |= direct
        ancestors.append(frozenset(direct).union(*(ancestors[each] for each in direct)))
        del step.after[:]
        step.after.extend(steps[each].name for each in sorted(direct))
        step.after_none = index > 0 and not direct
    return Listed(path, steps, tuple(ancestors))


def _direct(
    step: pb.Step, index: int, places: dict[str, int], first_use: dict[str, str], path: str, faults: FaultList
) -> set[int] | None:
    """The earlier steps that a step names; None where it leaves that open."""
    if step.after_none:
        if step.after:
            faults.add(f"{path}.after_none", "`after` names steps that it waits for; leave one of the two out")
        return set()
    if not step.after:
        return None
    direct: set[int] = set()
    for position, name in enumerate(step.after):
        where = places.get(name)
        if where is not None and where < index:
            direct.add(where)
        elif where is not None:
            reason = (
                f"{name} is the step itself, which could never begin; leave it out"
                if where == index
                else f"{name} is a later step; name an earlier one, or move this step behind it"
            )
            faults.add(f"{path}.after[{position}]", reason)
        elif name in first_use:
            reason = f"{name} is {first_use[name]}, and only steps of one list wait for each other"
            faults.add(f"{path}.after[{position}]", f"{reason}; name an earlier step of this list")
        else:
            instead = did_you_mean(name, list(places)[:index]) or "; name an earlier step"
            faults.add(f"{path}.after[{position}]", f"there is no step {quote(name)}{instead}")
    return direct


def _of_kind(steps: Sequence[pb.Step], kind: pb.StepKind.ValueType) -> list[int]:
    return [index for index, step in enumerate(steps) if step.kind == kind]


def _check_kinds(listed: Listed, faults: FaultList) -> None:
    """At most one pivot; what can be refused precedes it, everything else follows it."""
    steps = listed.steps
    pivots, retriables = (_of_kind(steps, kind) for kind in (pb.STEP_KIND_PIVOT, pb.STEP_KIND_RETRIABLE))
    for index in pivots[1:]:
        first = quote(steps[pivots[0]].name)
        faults.add(
            f"steps[{index}].kind", f"{first} is the pivot already; a saga has at most one, make this one retriable"
        )
    for pivot in pivots[:1]:
        _check_retriables(listed, pivot, retriables, faults)
    points = pivots[:1] or retriables
    for index, step in enumerate(steps):
        if step.kind in (pb.STEP_KIND_COMPENSATABLE, pb.STEP_KIND_READ_ONLY):
            _check_rejectable(listed, index, points, faults)


def _check_retriables(listed: Listed, pivot: int, retriables: Sequence[int], faults: FaultList) -> None:
    name = quote(listed.steps[pivot].name)
    early = [index for index in retriables if index < pivot]
    if early:
        faults.add(
            f"steps[{pivot}].kind",
            f"the pivot comes before every retriable step, but {quote(listed.steps[early[0]].name)} precedes it;"
            " move it up",
        )
    for index in retriables:
        if index > pivot and pivot not in listed.ancestors[index]:
            faults.add(
                f"steps[{index}].after",
                f"a retriable step waits for the pivot, directly or through others; add {name}, or leave `after` out",
            )


def _check_rejectable(listed: Listed, index: int, points: Sequence[int], faults: FaultList) -> None:
    """A step that can be refused: over before the point of no return, or (read-only) behind it."""
    step = listed.steps[index]
    passed = [point for point in points if point in listed.ancestors[index]]
    if passed and step.kind == pb.STEP_KIND_COMPENSATABLE:
        faults.add(
            f"steps[{index}].kind",
            f"behind the point of no return ({quote(listed.steps[passed[0]].name)}) nothing is undone;"
            " move this step before it, or make it retriable or read-only",
        )
    beside = [point for point in points if index not in listed.ancestors[point]]
    if passed or not beside:
        return
    point, name = beside[0], quote(step.name)
    of_point = quote(listed.steps[point].name)
    if index < point:
        faults.add(
            f"steps[{point}].after",
            f"{name} can be refused, so this step waits for it, directly or through others;"
            " add it, or leave `after` out",
        )
    else:
        also = ", or make it wait for it" if step.kind == pb.STEP_KIND_READ_ONLY else ""
        faults.add(
            f"steps[{index}].after",
            f"it can be refused, so it may not run beside {of_point}, the point of no return; move it before it{also}",
        )
