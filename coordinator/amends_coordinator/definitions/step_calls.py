"""The calls of a step: their methods, and what the methods' annotations add where the definition is silent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from google.protobuf.descriptor_pb2 import MethodOptions

from amends.v1 import annotations_pb2
from amends.v1 import saga_definition_pb2 as pb
from amends_coordinator.definitions.codes import fill_action_codes, fill_compensation_codes, refuse_codes_of_lookup
from amends_coordinator.definitions.errors import DescriptorError, quote
from amends_coordinator.definitions.sources import StepTypes
from amends_coordinator.definitions.spans import fill_call_timeout, fill_idempotency_window

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, MethodDescriptor

    from amends_coordinator.definitions.errors import FaultList
    from amends_coordinator.definitions.schema import Schema

LONGEST_METHOD = 256
"""What the ledger has room for, in characters."""


def annotation_of(method: MethodDescriptor) -> annotations_pb2.StepOptions | None:
    """What `option (amends.v1.step)` says on a method; None if it isn't there.

    The options go by way of bytes, because an extension that was unknown when they were parsed would stay unseen.
    """
    options = MethodOptions.FromString(method.GetOptions().SerializeToString())
    return options.Extensions[annotations_pb2.step] if options.HasExtension(annotations_pb2.step) else None


class CallResolver:
    """Finds the methods that a definition's calls name, each once, and fills the calls in."""

    def __init__(self, schema: Schema, faults: FaultList) -> None:
        self._schema = schema
        self._faults = faults
        self._methods: dict[str, MethodDescriptor | DescriptorError] = {}

    def request_type(self, method: str) -> Descriptor | None:
        """The request type of a method; None if there is no such method."""
        found = self._find(method)
        return None if isinstance(found, DescriptorError) else found.input_type

    def fill(self, step: pb.Step, path: str) -> StepTypes:
        """Check the methods of a step and fill in its compensation, lookup, and all that its calls leave open."""
        action = self._method(step.action.method, f"{path}.action.method", "")
        options = annotation_of(action) if action is not None else None
        annotation = f" (named by the annotation of {step.action.method})"
        undo_origin = "" if step.HasField("compensation") else annotation
        lookup_origin = "" if step.HasField("lookup") else annotation
        if action is not None and options is not None:
            _add_annotated_calls(step, action, options)
        self._check_guarantee(step.guarantee, f"{path}.guarantee")
        self._fill_call(step.action, step, options, f"{path}.action")
        self._fill_compensation(step, action, f"{path}.compensation", undo_origin)
        self._fill_lookup(step, action, f"{path}.lookup", lookup_origin)
        may_look_up = step.kind != pb.STEP_KIND_READ_ONLY
        fill_action_codes(step, options, f"{path}.action", self._faults, may_look_up=may_look_up)
        return _types_of(action)

    def fill_alone(self, step: pb.Step, path: str) -> StepTypes:
        """Check the method of a step that has an action and nothing else, and fill in what that leaves open."""
        for name in ("compensation", "lookup"):
            if step.HasField(name):
                reason = "a step of on_compensated is repeated until it succeeds, and nothing undoes it"
                self._faults.add(f"{path}.{name}", f"{reason}; leave it out")
        action = self._method(step.action.method, f"{path}.action.method", "")
        options = annotation_of(action) if action is not None else None
        self._check_guarantee(step.guarantee, f"{path}.guarantee")
        self._fill_call(step.action, step, options, f"{path}.action")
        fill_action_codes(step, options, f"{path}.action", self._faults, may_look_up=False)
        return _types_of(action)

    def _fill_compensation(self, step: pb.Step, action: MethodDescriptor | None, path: str, origin: str) -> None:
        if step.HasField("compensation"):
            method = self._method(step.compensation.method, f"{path}.method", origin)
            options = annotation_of(method) if method is not None else None
            self._fill_call(step.compensation, step, options, path)
            fill_compensation_codes(step.compensation, options, path, self._faults)
            if step.kind != pb.STEP_KIND_COMPENSATABLE:
                self._faults.add(
                    path, "only a compensatable step is undone; leave it out, or make the step compensatable"
                )
        elif step.kind == pb.STEP_KIND_COMPENSATABLE and action is not None:  # else its annotation isn't known
            self._faults.add(
                path,
                "a compensatable step needs one: give it here, or on the action's method as"
                ' option (amends.v1.step) = { compensation: "Undo" }; or make the step of another kind',
            )

    def _fill_lookup(self, step: pb.Step, action: MethodDescriptor | None, path: str, origin: str) -> None:
        if not step.HasField("lookup"):
            return
        if step.kind == pb.STEP_KIND_READ_ONLY:
            self._faults.add(path, "a read-only step is only repeated, there is nothing to look up; leave it out")
        elif step.lookup.method and step.lookup.method == step.action.method:
            reason = "it is the action itself, which would be done once more under another key"
            self._faults.add(f"{path}.method", f"{reason}; name a method that only tells what became of it")
        lookup = self._method(step.lookup.method, f"{path}.method", origin)
        self._fill_call(step.lookup, step, annotation_of(lookup) if lookup is not None else None, path)
        refuse_codes_of_lookup(step.lookup, path, self._faults)
        if lookup is None or action is None or lookup.output_type.full_name == action.output_type.full_name:
            return
        self._faults.add(
            f"{path}.method",
            f"it answers {lookup.output_type.full_name}, the action {action.output_type.full_name};"
            " a lookup tells the action's response, so name a method that answers that type",
        )

    def _fill_call(self, call: pb.Call, step: pb.Step, options: annotations_pb2.StepOptions | None, path: str) -> None:
        """Fill in what every call has: timeout, guarantee and (not on a lookup) how long keys are remembered."""
        if call.by_key and not path.endswith(".compensation"):
            self._faults.add(f"{path}.by_key", "only a compensation can find its work by key; leave it out")
        annotated = options if options is not None else annotations_pb2.StepOptions()
        fill_call_timeout(call, annotated.timeout if annotated.HasField("timeout") else None, path, self._faults)
        call.guarantee = call.guarantee or step.guarantee or annotated.guarantee or annotations_pb2.GUARANTEE_KEY
        if call.guarantee != step.guarantee:  # else it is the step's, which was looked at
            self._check_guarantee(call.guarantee, f"{path}.guarantee")
        if not path.endswith(".lookup"):
            window = annotated.idempotency_window if annotated.HasField("idempotency_window") else None
            fill_idempotency_window(call, window, path, self._faults)
        elif call.HasField("idempotency_window"):
            self._faults.add(f"{path}.idempotency_window", "a lookup can be repeated at any time; leave it out")

    def _check_guarantee(self, guarantee: annotations_pb2.Guarantee.ValueType, path: str) -> None:
        if guarantee not in annotations_pb2.Guarantee.values():
            number = int(guarantee)
            self._faults.add(path, f"{number} is no guarantee that this release knows; choose NONE, KEY or BARRIER")

    def _method(self, full_name: str, path: str, origin: str) -> MethodDescriptor | None:
        """A unary method; None if there is none, which is reported."""
        if not full_name:
            self._faults.add(path, 'it is required; write it as "package.Service/Method"')
            return None
        method = self._find(full_name)
        if isinstance(method, DescriptorError):
            self._faults.add(path, f"{method}{origin}")
            return None
        if len(full_name) > LONGEST_METHOD:
            self._faults.add(
                path,
                f"{quote(full_name)} has {len(full_name)} characters; a method with its package and service has at "
                f"most {LONGEST_METHOD}{origin}",
            )
        if method.client_streaming or method.server_streaming:
            self._faults.add(path, f"{quote(full_name)} streams; a step calls a unary method{origin}")
        return method

    def _find(self, full_name: str) -> MethodDescriptor | DescriptorError:
        found = self._methods.get(full_name)
        if found is None:
            try:
                found = self._schema.method(full_name)
            except DescriptorError as error:
                found = error
            self._methods[full_name] = found
        return found


def _types_of(action: MethodDescriptor | None) -> StepTypes:
    if action is None:
        return StepTypes()
    return StepTypes(request=action.input_type, response=action.output_type)


def _add_annotated_calls(step: pb.Step, action: MethodDescriptor, options: annotations_pb2.StepOptions) -> None:
    """Add what the action's annotation names, where the definition is silent and the step's kind has a use for it."""
    if options.compensation and not step.HasField("compensation") and step.kind == pb.STEP_KIND_COMPENSATABLE:
        step.compensation.method = _full_name(options.compensation, action)
    if options.lookup and not step.HasField("lookup") and step.kind != pb.STEP_KIND_READ_ONLY:
        step.lookup.method = _full_name(options.lookup, action)


def _full_name(named: str, action: MethodDescriptor) -> str:
    """A method as an annotation names it: of the same service, or by its full name."""
    return named if "/" in named else f"{action.containing_service.full_name}/{named}"
