"""Where a step may stand in its saga: its name, what it waits for, and on which side of the point of no return it lies.

The coordinator's check at registration is the last word; here each mistake is found on the line that makes it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from amends.errors import DefinitionError
from amends.steps import Step, StepKind, ancestors_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# `Any` below: each step has a request and a response type of its own.
AnyStep = Step[Any, Any]

STEP_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
MAXIMUM_STEP_COUNT = 64


@dataclass(frozen=True, slots=True)
class NewStep:
    """A step that is about to be added."""

    saga: str
    name: str
    kind: StepKind
    begins_once_compensated: bool = False


def check_name(new: NewStep, steps: Sequence[AnyStep]) -> None:
    """Refuses a name that is none or taken, and a step too many."""
    if not STEP_NAME.fullmatch(new.name):
        raise DefinitionError(
            f"a step can't be called {new.name!r}: small letters, digits and '_', a letter first, at most 64"
        )
    if any(step.name == new.name for step in steps):
        raise DefinitionError(f"saga {new.saga!r} has a step {new.name!r} already: give this one another name")
    if len(steps) == MAXIMUM_STEP_COUNT:
        raise DefinitionError(
            f"saga {new.saga!r} has {MAXIMUM_STEP_COUNT} steps already, which is as many as it can have"
        )


def followed_by(
    new: NewStep, steps: Sequence[AnyStep], after: Iterable[object] | AnyStep | None
) -> tuple[AnyStep, ...]:
    """The steps that the new one waits for, in their order.

    Arguments:
        new: the new step.
        steps: the saga's steps so far.
        after: what was given; None: every step of its sort that nothing follows yet.
    """
    ours = [step for step in steps if step.begins_once_compensated == new.begins_once_compensated]
    if after is None:
        followed = {before.name for step in ours for before in step.after}
        return tuple(step for step in ours if step.name not in followed)
    # A caller without a type checker may pass one step, or names.
    given: list[object] = [] if isinstance(after, Step) else list(after)
    if isinstance(after, Step) or not all(isinstance(each, Step) for each in given):
        raise DefinitionError(
            f"step {new.name!r}: after={after!r} isn't possible: pass the steps themselves, for example "
            f"after=({ours[0].name if ours else 'reserve'},), or () for none"
        )
    for each in given:
        if not any(each is known for known in steps):
            raise DefinitionError(
                f"step {new.name!r}: after names {each!r}, which isn't one of this saga's: use its own"
            )
        if not any(each is known for known in ours):
            raise DefinitionError(
                f"step {new.name!r} can't wait for {each!r}: steps that begin once the saga is compensated wait only "
                "for each other, and no other step waits for them"
            )
    return tuple(step for step in ours if any(step is each for each in given))


def check_order(new: NewStep, steps: Sequence[AnyStep], after: Iterable[AnyStep]) -> None:
    """Refuses a step that could be refused or undone behind or beside the point of no return."""
    ours = [step for step in steps if not step.begins_once_compensated]
    pivot = next((step for step in ours if step.kind is StepKind.PIVOT), None)
    retriables = [step for step in ours if step.kind is StepKind.RETRIABLE]
    points = [pivot] if pivot is not None else retriables
    ancestors = ancestors_of(after)
    match new.kind:
        case StepKind.COMPENSATABLE:
            _check_compensatable(new, points)
        case StepKind.READ_ONLY:
            if points and ancestors.isdisjoint(point.name for point in points):
                raise DefinitionError(
                    f"the read-only step {new.name!r} can be refused, so it can't run beside {points[0].name!r}, which "
                    "is the point of no return: describe it before, or make it wait with after=..."
                )
        case StepKind.PIVOT:
            _check_pivot(new, pivot, retriables)
            _check_waits(new, ours, ancestors)
        case StepKind.RETRIABLE:
            _check_retriable(new, pivot, ours, ancestors)


def _check_compensatable(new: NewStep, points: Sequence[AnyStep]) -> None:
    if points:
        raise DefinitionError(
            f"step {new.name!r} can't stand behind {points[0].name!r}: behind the point of no return nothing is undone "
            "any more; put it before, or make it retriable()"
        )


def _check_pivot(new: NewStep, pivot: AnyStep | None, retriables: Sequence[AnyStep]) -> None:
    if pivot is not None:
        raise DefinitionError(
            f"step {new.name!r} can't be a pivot too: {pivot.name!r} is the point of no return, and there is one"
        )
    if retriables:
        raise DefinitionError(f"the pivot {new.name!r} has to come before the retriable step {retriables[0].name!r}")


def _check_retriable(new: NewStep, pivot: AnyStep | None, ours: Sequence[AnyStep], ancestors: frozenset[str]) -> None:
    if pivot is None:
        names = {step.name for step in ours if step.kind is StepKind.RETRIABLE}
        before = [step for step in ours if step.name not in names and names.isdisjoint(ancestors_of(step.after))]
        _check_waits(new, before, ancestors)
    elif pivot.name not in ancestors:
        raise DefinitionError(
            f"the retriable step {new.name!r} has to wait for the pivot {pivot.name!r}: name it, or a step that waits "
            "for it, in after=..., or leave `after` out"
        )


def _check_waits(new: NewStep, before: Sequence[AnyStep], ancestors: frozenset[str]) -> None:
    """Everything that can be refused has to be over when the point of no return is passed."""
    missing = [step.name for step in before if step.name not in ancestors]
    if missing:
        raise DefinitionError(
            f"step {new.name!r} is the point of no return, but nothing makes it wait for what can be refused: "
            f"{', '.join(missing)}; name all such steps in after=..., or leave `after` out"
        )
