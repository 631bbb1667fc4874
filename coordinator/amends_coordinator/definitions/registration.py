"""Registration: checks a saga definition as a whole, and answers a copy in which nothing is left to be guessed.

Everything that a definition may leave out is filled in here, once: kinds, `after`, timeouts, budgets, guarantees,
codes, and the compensation and lookup that the methods' annotations name. Their requests are resolved field by field
and stand in the copy as bindings. The copy carries the files that it needs and no others, so a later deploy of a
participant changes no saga. Its version is computed from all of that, so the same content has the same version wherever
it is registered, and resolving a resolved definition changes nothing.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

from google.protobuf.descriptor_pb2 import FileDescriptorSet

from amends.v1 import saga_definition_pb2 as pb
from amends_coordinator.definitions.by_name import resolve_by_name
from amends_coordinator.definitions.chosen import check_chosen
from amends_coordinator.definitions.descriptors import file_digest, is_of_a_library, readable_files
from amends_coordinator.definitions.errors import DescriptorError, Fault, FaultList, InvalidDefinitionError, quote
from amends_coordinator.definitions.required import check_required
from amends_coordinator.definitions.schema import Schema
from amends_coordinator.definitions.sent import check_files, check_unknown_fields
from amends_coordinator.definitions.sources import Scope, StepTypes
from amends_coordinator.definitions.spans import DAY_US, PATIENT, QUICK, SAGA_TIMEOUT_US, Span, fill_retry
from amends_coordinator.definitions.step_calls import CallResolver
from amends_coordinator.definitions.step_options import fill_options
from amends_coordinator.definitions.step_order import fill_order
from amends_coordinator.definitions.templates import check_template, sort_bindings, tidy
from amends_coordinator.definitions.unfilled import check_filled

if TYPE_CHECKING:
    from collections.abc import Sequence

    from google.protobuf.descriptor import Descriptor

    from amends_coordinator.definitions.spans import Budget
    from amends_coordinator.definitions.step_order import StepOrder

__all__ = ["Fault", "InvalidDefinitionError", "resolve"]

DEFINITION_NAME = re.compile(r"[a-z][a-z0-9_-]{0,63}")


def resolve(definition: pb.SagaDefinition, *, announced: Sequence[FileDescriptorSet] = ()) -> pb.SagaDefinition:
    """Check a definition and fill in everything that it leaves out.

    Args:
        definition: as a client sent it; it isn't changed.
        announced: what participants have announced, for types and methods that the definition carries no files of.

    Returns:
        The resolved copy, with its version and the descriptors that it needs. `create_time` is unset.

    Raises:
        InvalidDefinitionError: everything that is wrong with it, at once.
    """
    resolved = pb.SagaDefinition()
    resolved.CopyFrom(definition)
    resolved.ClearField("version")
    resolved.ClearField("create_time")
    faults = FaultList()
    schema = Schema(*(readable_files(files) for files in (resolved.descriptors, *announced)))
    check_files(resolved.descriptors, faults)
    check_unknown_fields(resolved, "", faults)
    _Resolution(resolved, schema, faults).run()
    faults.raise_if_any()
    resolved.descriptors.CopyFrom(schema.used_files())
    resolved.version = version_of(resolved)
    return resolved


def version_of(resolved: pb.SagaDefinition) -> str:
    """16 hexadecimal digits of what a resolved definition says, whatever release of protobuf described its types."""
    content = pb.SagaDefinition()
    content.CopyFrom(resolved)
    for field in ("version", "create_time", "descriptors"):
        content.ClearField(field)
    digest = hashlib.sha256(content.SerializeToString(deterministic=True))
    for file in sorted(resolved.descriptors.file, key=lambda file: file.name):
        if not is_of_a_library(file.name):
            digest.update(file_digest(file).encode())
    return digest.hexdigest()[:16]


class _Resolution:
    """The checks of one definition, in the order in which they need each other."""

    def __init__(self, definition: pb.SagaDefinition, schema: Schema, faults: FaultList) -> None:
        self._definition = definition
        self._schema = schema
        self._faults = faults
        self._calls = CallResolver(schema, faults)
        self._types: dict[str, StepTypes] = {}
        self._input: Descriptor | None = None

    def run(self) -> None:
        """Check and fill in everything but the descriptors and the version."""
        definition = self._definition
        self._check_header()
        order = fill_order(definition, self._faults)
        for index, step in enumerate(definition.steps):
            path = f"steps[{index}]"
            self._types.setdefault(step.name, self._calls.fill(step, path))
            fill_options(step, path, self._faults)
            check_chosen(step, self._input, path, self._faults)
            self._fill_budgets(step, PATIENT if order.is_forward_only(index) else QUICK, path)
        for index, step in enumerate(definition.on_compensated):
            path = f"on_compensated[{index}]"
            self._types.setdefault(step.name, self._calls.fill_alone(step, path))
            fill_options(step, path, self._faults)
            check_chosen(step, self._input, path, self._faults)
            self._fill_budgets(step, PATIENT, path)
        self._resolve_templates(order)
        self._check_output()

    def _check_header(self) -> None:
        definition, faults = self._definition, self._faults
        if not DEFINITION_NAME.fullmatch(definition.name):
            faults.add(
                "name",
                f"{quote(definition.name)} is no name of a definition; write at most 64 small letters, digits, _ and -,"
                " beginning with a letter",
            )
        self._input = self._message(definition.input_type, "input_type")
        if definition.compensation_failure_policy == pb.COMPENSATION_FAILURE_POLICY_UNSPECIFIED:
            definition.compensation_failure_policy = pb.COMPENSATION_FAILURE_POLICY_CONTINUE
        elif definition.compensation_failure_policy not in pb.CompensationFailurePolicy.values():
            number = int(definition.compensation_failure_policy)
            reason = f"{number} is no policy that this release knows; choose CONTINUE or HALT, or leave it out"
            faults.add("compensation_failure_policy", reason)
        span = Span(path="timeout", default_us=SAGA_TIMEOUT_US, longest_us=30 * DAY_US)
        span.fill(definition.timeout, faults, given=definition.HasField("timeout"))

    def _fill_budgets(self, step: pb.Step, budget: Budget, path: str) -> None:
        fill_retry(step.action.retry, budget, f"{path}.action.retry", self._faults)
        if step.HasField("compensation"):
            fill_retry(step.compensation.retry, PATIENT, f"{path}.compensation.retry", self._faults)
        if step.HasField("lookup"):
            fill_retry(step.lookup.retry, PATIENT, f"{path}.lookup.retry", self._faults)

    def _resolve_templates(self, order: StepOrder) -> None:
        for index, step in enumerate(self._definition.steps):
            self._resolve_step(step, order.steps.names_before(index), f"steps[{index}]")
        # What the saga did before it was rolled back may be told; what of it never happened stays empty.
        steps = frozenset(step.name for step in self._definition.steps)
        for index, step in enumerate(self._definition.on_compensated):
            readable = steps | order.on_compensated.names_before(index)
            scope = self._scope(readable, own=step.name, knows_failure=True)
            self._resolve_action(step.action, scope, f"on_compensated[{index}].action.request")

    def _resolve_step(self, step: pb.Step, before: frozenset[str], path: str) -> None:
        own = self._types[step.name]
        self._resolve_action(step.action, self._scope(before, own=step.name), f"{path}.action.request")
        asked_for = ("step_request", step.name, own.request)
        answered = ("step_response", step.name, own.response)
        behind = before | {step.name}
        if step.HasField("compensation"):
            scope = self._scope(behind, own=step.name, knows_failure=True)
            self._resolve(step.compensation, scope, (answered, asked_for), f"{path}.compensation")
        if step.HasField("lookup"):
            # A lookup is asked while there is no response, so only the request can tell it what to look for.
            scope = self._scope(behind, own=step.name, awaits_response=True)
            self._resolve(step.lookup, scope, (asked_for,), f"{path}.lookup")

    def _resolve_action(self, call: pb.Call, scope: Scope, path: str) -> None:
        target, known = self._calls.request_type(call.method), len(self._faults)
        self._check(call, scope, path)
        if target is not None and len(self._faults) == known:
            check_required(call.request, target, path, self._faults)
        tidy(call)

    def _resolve(
        self,
        call: pb.Call,
        scope: Scope,
        sources: Sequence[tuple[str, str, Descriptor | None]],
        path: str,
    ) -> None:
        target, known = self._calls.request_type(call.method), len(self._faults)
        place = f"{path}.request"
        self._check(call, scope, place)
        if target is not None and len(self._faults) == known:
            has_template = call.request.ByteSize() > 0
            resolve_by_name(call.request, target, sources, place, self._faults)
            # Not where the action or the call itself is at fault: that says enough.
            if all(message is not None for _, _, message in sources) and not self._faults.at(path, f"{path}.method"):
                check_filled(call, target, has_template=has_template, path=place, faults=self._faults)
            if len(self._faults) == known:
                check_required(call.request, target, place, self._faults)
        tidy(call)

    def _check(self, call: pb.Call, scope: Scope, path: str) -> None:
        target = self._calls.request_type(call.method)
        if target is not None:
            check_template(call.request, target, scope, path, self._faults)

    def _scope(
        self, readable: frozenset[str], *, own: str = "", knows_failure: bool = False, awaits_response: bool = False
    ) -> Scope:
        """What the request of a call of the step `own`, or (without one) the output, may read."""
        return Scope(
            input=self._input,
            steps=self._types,
            readable=readable,
            afterwards=frozenset(step.name for step in self._definition.on_compensated),
            own=own,
            is_call=bool(own),
            knows_failure=knows_failure,
            awaits_response=awaits_response,
        )

    def _check_output(self) -> None:
        definition = self._definition
        if not definition.output_type:
            if definition.HasField("output"):
                self._faults.add("output", "there is no output_type to build; name one, or leave the output out")
            return
        target = self._message(definition.output_type, "output_type")
        if not definition.HasField("output"):
            self._faults.add("output", f"nothing says how the {definition.output_type} is built; bind its fields")
        elif target is not None:
            scope, known = self._scope(frozenset(step.name for step in definition.steps)), len(self._faults)
            check_template(definition.output, target, scope, "output", self._faults)
            if len(self._faults) == known:
                check_required(definition.output, target, "output", self._faults)
            sort_bindings(definition.output)

    def _message(self, full_name: str, path: str) -> Descriptor | None:
        if not full_name:
            self._faults.add(path, "it is required; give the full name of a message type")
            return None
        try:
            return self._schema.message(full_name)
        except DescriptorError as error:
            self._faults.add(path, str(error))
            return None
