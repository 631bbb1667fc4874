"""What a step may say about doubt: `on_unknown`, `settle_delay`, `at_most_once`; what they need, and their ranges."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amends.v1 import saga_definition_pb2 as pb
from amends_coordinator.definitions.spans import DAY_US, Span, readable

if TYPE_CHECKING:
    from amends_coordinator.definitions.errors import FaultList

LONGEST_SETTLE_DELAY_US = 30 * DAY_US

WHY_NEVER_IN_DOUBT = {
    pb.STEP_KIND_PIVOT: "a pivot that stays unknown always waits for a person",
    pb.STEP_KIND_RETRIABLE: "a retriable step is repeated until it succeeds",
    pb.STEP_KIND_READ_ONLY: "a read-only step has nothing to undo",
}


def fill_options(step: pb.Step, path: str, faults: FaultList) -> None:
    """Check the options of a step whose calls are filled in, and fill in `on_unknown`."""
    _fill_on_unknown(step, f"{path}.on_unknown", faults)
    if step.HasField("settle_delay"):
        _check_settle_delay(step, f"{path}.settle_delay", faults)
    if step.at_most_once and step.kind in (pb.STEP_KIND_RETRIABLE, pb.STEP_KIND_READ_ONLY):
        why = (
            WHY_NEVER_IN_DOUBT[step.kind]
            if step.kind == pb.STEP_KIND_RETRIABLE
            else "a read-only step changes nothing, so repeating it does no harm"
        )
        faults.add(f"{path}.at_most_once", f"{why}; leave it out")


def _fill_on_unknown(step: pb.Step, path: str, faults: FaultList) -> None:
    if step.on_unknown not in pb.OnUnknown.values():
        faults.add(path, f"{int(step.on_unknown)} is nothing that this release knows; choose COMPENSATE or PARK")
    elif step.on_unknown and step.kind in WHY_NEVER_IN_DOUBT:
        faults.add(path, f"only a compensatable step has it: {WHY_NEVER_IN_DOUBT[step.kind]}; leave it out")
    elif step.kind == pb.STEP_KIND_COMPENSATABLE:
        step.on_unknown = step.on_unknown or pb.ON_UNKNOWN_COMPENSATE


def _check_settle_delay(step: pb.Step, path: str, faults: FaultList) -> None:
    if step.kind in WHY_NEVER_IN_DOUBT:
        faults.add(path, f"only a compensatable step has it: {WHY_NEVER_IN_DOUBT[step.kind]}; leave it out")
    elif not step.HasField("lookup"):
        faults.add(path, "it says when a lookup is believed, and the step has none; give it one, or leave this out")
    span = Span(path=path, default_us=None, longest_us=LONGEST_SETTLE_DELAY_US)
    delay_us = span.fill(step.settle_delay, faults, given=True)
    if delay_us is None or not step.action.HasField("idempotency_window"):
        return
    timeout_us = step.action.timeout.ToMicroseconds()
    window_us = step.action.idempotency_window.ToMicroseconds()
    if timeout_us + delay_us >= window_us:
        faults.add(
            path,
            f"with one attempt of the action ({readable(timeout_us)}) it is not shorter than the action's"
            f" idempotency_window, {readable(window_us)}, so the lookup could never be believed; choose a shorter one",
        )
