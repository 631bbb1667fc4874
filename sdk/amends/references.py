"""References: what `saga.input` and `step.response` really are. They record which field was named.

The type checkers see the message type, so every name and type is checked. At run time there is no value yet, so
whatever would need one (a condition, an f-string, a sum, a loop) raises at once and says what to do instead.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NoReturn, cast

from amends.errors import NotAValueError, UnknownFieldError
from amends.shapes import STRING, Shape, shape_of_field, shape_of_message
from amends.v1 import saga_definition_pb2

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor


@dataclass(eq=False, slots=True)
class Scope:
    """One saga that is being described: what its references belong to, and how often its description was changed."""

    saga: str
    changes: int = 0

    def __repr__(self) -> str:
        return f"saga {self.saga!r}"


@dataclass(frozen=True, slots=True)
class Source:
    """Where a field's value comes from once the saga runs."""

    scope: Scope
    root: str
    """"input", "request", "response", "saga" or "failure"."""
    step: str
    """The step whose request or response it is; else empty."""
    path: tuple[str, ...]
    """Names of the fields; for "saga" and "failure" the one name of a `SagaField` or `FailureField`."""
    shape: Shape

    def __str__(self) -> str:
        return ".".join([self.step or "saga", *([] if self.root == "saga" else [self.root]), *self.path]).lower()

    def field(self, name: str) -> Source:
        """The source that is a field of this one."""
        message = self.shape.message
        if message is None:
            raise UnknownFieldError(
                f"{self} is of type {self.shape.text}: it has no field {name!r} that could be named"
            )
        return replace(self, path=(*self.path, name), shape=shape_of_field(find_field(message, name)))

    def binding(self, target: str) -> saga_definition_pb2.Binding:
        """The binding that copies this source into the target field."""
        path = ".".join(self.path)
        step_field = saga_definition_pb2.StepField(step=self.step, path=path)
        match self.root:
            case "input":
                return saga_definition_pb2.Binding(target=target, input=path)
            case "request":
                return saga_definition_pb2.Binding(target=target, step_request=step_field)
            case "response":
                return saga_definition_pb2.Binding(target=target, step_response=step_field)
            case "failure":
                failure_field = saga_definition_pb2.FailureField.Value(f"FAILURE_FIELD_{path}")
                return saga_definition_pb2.Binding(target=target, failure=failure_field)
            case _:
                saga_field = saga_definition_pb2.SagaField.Value(f"SAGA_FIELD_{path}")
                return saga_definition_pb2.Binding(target=target, saga=saga_field)


def find_field(message: Descriptor, name: str) -> FieldDescriptor:
    """The field of a message type; an unknown name is an error that lists the known ones."""
    if name in message.fields_by_name:
        return message.fields_by_name[name]
    near = difflib.get_close_matches(name, message.fields_by_name, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"its fields are: {', '.join(message.fields_by_name) or 'none'}"
    raise UnknownFieldError(f"{message.full_name} has no field {name!r}: {hint}")


def _refuse(self: Reference, *_: object) -> NoReturn:
    raise NotAValueError(
        f"{source_of(self)}: this is a reference, not a value: a definition only names fields, it can't compute with "
        "them. Compute before start() and put the result into the input, or do it in the participant."
    )


class Reference:
    """A field that was named, to be filled in once the saga runs."""

    __slots__ = ("__amends_source__",)
    __amends_source__: Source

    def __init__(self, source: Source) -> None:
        object.__setattr__(self, "__amends_source__", source)

    def __getattr__(self, name: str) -> Reference:
        if name.startswith("__") and name.endswith("__"):
            # Python's own questions ("can you be copied?") get Python's own no.
            raise AttributeError(name)
        return Reference(self.__amends_source__.field(name))

    def __repr__(self) -> str:
        return f"<reference {self.__amends_source__}>"

    def __copy__(self) -> Reference:
        return self

    def __deepcopy__(self, _memo: object) -> Reference:
        return self

    __setattr__ = __delattr__ = _refuse
    __bool__ = __str__ = __format__ = __bytes__ = __int__ = __float__ = __complex__ = __index__ = _refuse
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __hash__ = _refuse
    __iter__ = __next__ = __len__ = __contains__ = __getitem__ = __reversed__ = __setitem__ = __delitem__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _refuse
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __pow__ = __rpow__ = __divmod__ = __rdivmod__ = _refuse
    __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = __lshift__ = __rshift__ = _refuse
    __neg__ = __pos__ = __abs__ = __invert__ = __round__ = __call__ = _refuse


def source_of(value: object) -> Source | None:
    """The source that a reference names; None for a value."""
    return value.__amends_source__ if isinstance(value, Reference) else None


def message_reference(scope: Scope, root: str, step: str, descriptor: Descriptor) -> Reference:
    """The reference to a whole message: the saga's input, or a step's request or response."""
    return Reference(Source(scope, root, step, (), shape_of_message(descriptor)))


def saga_reference(scope: Scope, field: str) -> str:
    """The reference to something the coordinator itself knows of the saga, which is always a string."""
    return cast("str", Reference(Source(scope, "saga", "", (field,), STRING)))


class FailureReference:
    """Why the saga rolls back: each part a reference to a string, for compensations and `on_compensated` steps."""

    __slots__ = ("_scope",)

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    def __repr__(self) -> str:
        return f"<reference saga.failure of {self._scope!r}: name its step, reason, status_code or message>"

    @property
    def step(self) -> str:
        """The step that it began with; empty if it was the saga as a whole, for example its timeout."""
        return self._field("STEP")

    @property
    def reason(self) -> str:
        """The short reason, for example "CARD_DECLINED"."""
        return self._field("REASON")

    @property
    def status_code(self) -> str:
        """The gRPC status code by name, for example "FAILED_PRECONDITION"."""
        return self._field("STATUS_CODE")

    @property
    def message(self) -> str:
        """The message for people."""
        return self._field("MESSAGE")

    def _field(self, name: str) -> str:
        return cast("str", Reference(Source(self._scope, "failure", "", (name,), STRING)))
