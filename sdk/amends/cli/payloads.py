"""Turns JSON into inputs and responses and payloads into JSON, by the types that the saga's definition carries.

The types live in a descriptor pool of their own, so that two definitions may know one type in different versions and
this process needs none of the generated modules.
"""

from __future__ import annotations

import base64
import json
import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any as Json

from google.protobuf.any_pb2 import Any
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import Default, DescriptorPool
from google.protobuf.json_format import MessageToDict, Parse, ParseError
from google.protobuf.message import DecodeError, EncodeError
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.wrappers_pb2 import BytesValue

from amends.cli.errors import CommandError
from amends.v1.saga_definition_pb2 import SagaDefinition
from amends.v1.saga_pb2 import Saga

FIELD = re.compile(r"^Failed to parse (?P<field>\S+) field: ")
UNKNOWN_FIELD = re.compile(
    r'^Message type "(?P<type>[^"]+)" has no field named "(?P<field>[^"]*)"'
    r'.*?Available Fields\(except extensions\): "\[(?P<known>[^\]]*)\]"',
    re.DOTALL,
)
UNPRINTABLE = re.compile(r"[\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")
"""What JSON allows in strings and terminals obey: control characters, and those that turn the direction of writing."""
PYTHONS_WORDS = (
    (re.compile(r"'(\w+)' object is not (?:iterable|subscriptable)"), r"an object is wanted here, not \1"),
    (
        re.compile(r"invalid literal for int\(\) with base 10: (.*)", re.DOTALL),
        r"a whole number is wanted here, not \1",
    ),
    (re.compile(r"int\(\) argument must be .*, not '(\w+)'"), r"a whole number is wanted here, not \1"),
    (re.compile(r"expected string or bytes-like object, got '(\w+)'"), r"a string is wanted here, not \1"),
)
"""What protobuf passes on from Python about a value of the wrong kind, and what that means in JSON."""


def pool_of(definition: SagaDefinition) -> DescriptorPool:
    """A pool with the types that the definition carries.

    Raises:
        CommandError: the files don't fit together.
    """
    pool = DescriptorPool()
    files = {file.name: file for file in definition.descriptors.file}
    added: set[str] = set()
    try:
        for name in files:
            _add(pool, files, name, added)
    except (TypeError, ValueError, KeyError) as error:
        raise CommandError(
            f"the types of the definition {definition.name!r} can't be read: {error}",
            "Register the definition again.",
        ) from error
    return pool


def read_text(given: str, what: str) -> str:
    """The JSON that was given, or that stands in the file that was given (@FILE; @- is standard input).

    Raises:
        CommandError: the file can't be read.
    """
    if not given.startswith("@"):
        return given
    name = given[1:]
    try:
        return sys.stdin.read() if name == "-" else Path(name).read_text("utf-8")
    except OSError as error:
        raise CommandError(f"can't read {what} from {name!r}: {error.strerror or error}") from error
    except ValueError as error:
        raise CommandError(f"can't read {what} from {name!r}: it is not UTF-8 text.") from error


def input_from_json(definition: SagaDefinition, text: str) -> Any:
    """The saga's input from JSON in protobuf's own mapping.

    Raises:
        CommandError: it is no JSON, or doesn't fit the input type; names the field.
    """
    pool = pool_of(definition)
    try:
        wanted = pool.FindMessageTypeByName(definition.input_type)
    except KeyError as error:
        raise CommandError(
            f"the definition {definition.name!r} doesn't carry its input type {definition.input_type}.",
            "Register the definition again.",
        ) from error
    return _packed(pool, wanted, text, "--input")


def response_from_json(definition: SagaDefinition, method: str, text: str) -> Any:
    """A method's response from JSON.

    Arguments:
        definition: carries the method's types.
        method: "package.Service/Method".
        text: the JSON.

    Raises:
        CommandError: as of `input_from_json`.
    """
    pool = pool_of(definition)
    try:
        found = pool.FindMethodByName(method.replace("/", "."))
    except KeyError as error:
        raise CommandError(
            f"the definition {definition.name!r} doesn't carry the method {method}.", "Register the definition again."
        ) from error
    return _packed(pool, found.output_type, text, "--response")


def _packed(pool: DescriptorPool, wanted: Descriptor, text: str, option: str) -> Any:
    name = wanted.full_name
    message = GetMessageClass(wanted)()
    _check_json(text, name, option)
    try:
        Parse(text, message, descriptor_pool=pool)
    except (ParseError, ValueError, TypeError, RecursionError) as error:
        raise CommandError(*explain_parse_error(str(error), name, option)) from error
    try:
        return Any(type_url=f"type.googleapis.com/{name}", value=message.SerializeToString(deterministic=True))
    except EncodeError as error:  # proto2 has fields that are required
        raise CommandError(f"{option}: {error}.") from error


def saga_json(saga: Saga, pool: DescriptorPool, *, indent: int | None = 2) -> str:
    """The saga as protobuf's JSON, on one line where `indent` is None.

    A payload whose type is in no pool, or that doesn't parse as it, is shown as its bytes in base64. What can't be
    printed is escaped, so that no payload can draw on a terminal, and everything else is where the output isn't UTF-8.
    """
    bare = Saga()
    bare.CopyFrom(saga)
    bare.ClearField("input")
    bare.ClearField("output")
    for intent in bare.intents:
        intent.ClearField("request")
        intent.ClearField("response")
    shown: dict[str, Json] = MessageToDict(bare)
    if saga.labels:
        shown["labels"] = dict(sorted(saga.labels.items()))
    if saga.HasField("input"):
        shown["input"] = _payload_json(saga.input, pool)
    if saga.HasField("output"):
        shown["output"] = _payload_json(saga.output, pool)
    for intent, row in zip(saga.intents, shown.get("intents", []), strict=True):
        if intent.HasField("request"):
            row["request"] = _payload_json(intent.request, pool)
        if intent.HasField("response"):
            row["response"] = _payload_json(intent.response, pool)
    is_utf8 = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    text = json.dumps(shown, indent=indent, ensure_ascii=not is_utf8)
    return UNPRINTABLE.sub(lambda found: json.dumps(found[0])[1:-1], text)


# JSON has no narrower type than this: whatever protobuf's mapping gives.
def _payload_json(payload: Any, pool: DescriptorPool) -> Json:
    # So the coordinator hands out a payload that doesn't parse; this type comes with no definition.
    types = Default() if payload.Is(BytesValue.DESCRIPTOR) else pool
    with suppress(TypeError, ValueError, KeyError, DecodeError, RecursionError):
        return MessageToDict(payload, descriptor_pool=types)
    return {"@type": payload.type_url, "base64": base64.b64encode(payload.value).decode("ascii")}


def _add(pool: DescriptorPool, files: dict[str, FileDescriptorProto], name: str, added: set[str]) -> None:
    """Add a file behind those that it imports; a file that imports itself in a circle is refused by the pool."""
    if name in added:
        return
    added.add(name)
    # What comes with protobuf need not be sent along.
    is_known = name not in files and name.startswith("google/protobuf/")
    file = FileDescriptorProto.FromString(Default().FindFileByName(name).serialized_pb) if is_known else files[name]
    for imported in file.dependency:
        _add(pool, files, imported, added)
    pool.AddSerializedFile(file.SerializeToString())


def _check_json(text: str, type_name: str, option: str) -> None:
    """Whether it is JSON at all, so that protobuf's mapping has only fields to complain of."""
    try:
        value = json.loads(text)
    except ValueError as error:
        raise CommandError(
            f"{option} is no JSON: {error}", 'Write it like \'{"field": "value"}\', or @FILE to read it from a file.'
        ) from error
    except RecursionError as error:
        raise CommandError(f"{option} is nested too deeply.") from error
    if not isinstance(value, dict) and not type_name.startswith("google.protobuf."):
        raise CommandError(f"{option} must be a JSON object with the fields of {type_name}.")


def explain_parse_error(said: str, type_name: str, option: str) -> list[str]:
    """Protobuf's complaint with the field's whole path in front."""
    path: list[str] = []
    while found := FIELD.match(said):
        path.append(found["field"])
        said = said[found.end() :]
    if unknown := UNKNOWN_FIELD.match(said):
        known = unknown["known"].replace("'", "")
        return [
            f"{option}: {'.'.join([*path, unknown['field']])} is no field of {unknown['type']}.",
            f"It has: {known}." if known else "It has no fields.",
        ]
    for pythons, meant in PYTHONS_WORDS:
        said = pythons.sub(meant, said)
    where = f"field {'.'.join(path)} of {type_name}" if path else type_name
    return [f"{option}: {where}: {said.strip().rstrip('.')}."]
