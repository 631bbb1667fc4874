"""A unary method as it is served, and the requests that come for it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.message import DecodeError, Message

GRPCS_OWN = "/grpc."
"""How the paths of gRPC's own services begin, such as health and reflection: they are no steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedMethod:
    """A unary method of a service.

    Attributes:
        name: "package.Service/Method".
        behaviour: the team's handler.
        plain: whether it is a `def`, which may block, and not an `async def`.
        request, response: the classes of its messages.
    """

    name: str
    behaviour: Callable[[Any, Any], object]  # Any: each handler's own request and context
    plain: bool
    request: type[Message]
    response: type[Message]


def served_method(path: str, behaviour: Callable[[Any, Any], object]) -> ServedMethod:
    """The method of that path ("/package.Service/Method"), served by that handler.

    Raises:
        KeyError: no imported `_pb2` module describes it.
    """
    name = path.removeprefix("/")
    request, response = _messages(name)
    return ServedMethod(
        name=name,
        behaviour=behaviour,
        plain=not inspect.iscoroutinefunction(inspect.unwrap(behaviour)),
        request=request,
        response=response,
    )


@lru_cache(maxsize=1024)
def _messages(name: str) -> tuple[type[Message], type[Message]]:
    """The classes of a method's request and response: looked up once, since it may be asked with every call."""
    method = descriptor_pool.Default().FindMethodByName(name.replace("/", "."))
    return message_factory.GetMessageClass(method.input_type), message_factory.GetMessageClass(method.output_type)


class ReceivedRequest:
    """The request of one call, as it came and as a message: whoever stands between gRPC and us reads the message.

    Attributes:
        sent: its bytes.
        readable: whether they parse. If not, the message is an empty one, which the handler never sees.
    """

    __slots__ = ("_method", "readable", "sent")

    def __init__(self, method: ServedMethod) -> None:
        self._method = method
        self.sent, self.readable = b"", False

    def read(self, sent: bytes) -> Message:
        """What gRPC is told to parse the request with."""
        self.sent = sent
        try:
            message = self._method.request.FromString(sent)
        except DecodeError:
            return self._method.request()
        self.readable = True
        return message
