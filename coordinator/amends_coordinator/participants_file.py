"""Reads static participants from the TOML file that the setting `participants_file` names.

[participants.bank]
target = "dns:///bank.example:443"
descriptors = "bank.binpb"       # beside this file; left out: the target's server reflection is asked
services = ["bank.v1.Accounts"]  # left out: all that are described
headers = { x-tenant = "shop" }
token_file = "bank-token"
capacity = 16
tls = { ca_file = "bank-ca.pem" }
"""

from __future__ import annotations

import tomllib
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.message import DecodeError

from amends.v1 import registry_service_pb2 as pb
from amends_coordinator.definitions.errors import quote
from amends_coordinator.grpc_api.static_requests import checked_static
from amends_coordinator.grpc_api.validation import Checks, InvalidRequestError
from amends_coordinator.settings import SettingsError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from amends_coordinator.engine.static_participants import StaticRequest

LARGEST_BYTES = 1 << 20
INT32 = range(-(2**31), 2**31)
TABLE = "participants"
TLS_KEYS = ("ca_file", "client_certificate_file", "client_key_file", "server_name")


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in cast("list[object]", value))


def _is_table_of_texts(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(each, str) for each in cast("dict[str, object]", value).values())


def _is_number(value: object) -> bool:
    return type(value) is int and value in INT32


KINDS: Mapping[str, tuple[str, Callable[[object], bool]]] = {
    "target": ("a text", _is_text),
    "services": ("a list of texts", _are_texts),
    "descriptors": ("a text", _is_text),
    "headers": ("a table of texts", _is_table_of_texts),
    "token_file": ("a text", _is_text),
    "capacity": ("a whole number", _is_number),
    "tls": ("a table of texts, which may be empty", _is_table_of_texts),
}
"""The keys of a participant's table, and what each holds."""


def read_participants(name: str, *, payload_limit_bytes: int) -> Sequence[StaticRequest]:
    """The static participants that a file declares, in its order.

    Args:
        name: the file's path; "": there is none, and so no participants.
        payload_limit_bytes: the most that a participant's descriptors may have.

    Raises:
        SettingsError: with a sentence for every fault, naming the file, the table and the key.
    """
    if not name:
        return []
    file = Path(name)
    faults: list[str] = []
    found: list[StaticRequest] = []
    for participant, table in _tables(file, faults).items():
        reading = _Reading(file, participant, payload_limit_bytes)
        request = reading.request(table)
        faults += reading.faults
        if request is not None:
            found.append(request)
    if faults:
        raise SettingsError(faults)
    return found


def _tables(file: Path, faults: list[str]) -> dict[str, Any]:
    """The participants' tables; Any: TOML may hold anything."""
    try:
        with file.open("rb") as opened:
            text = opened.read(LARGEST_BYTES + 1)
        if len(text) > LARGEST_BYTES:
            raise SettingsError([f"{file} (AMENDS_PARTICIPANTS_FILE) has more than {LARGEST_BYTES} bytes: split it."])
        content = tomllib.loads(text.decode("utf-8"))
    except OSError as error:
        raise SettingsError(
            [f"{file} (AMENDS_PARTICIPANTS_FILE) can't be read ({error.strerror}): correct the path or its rights."]
        ) from error
    except (ValueError, RecursionError) as error:
        raise SettingsError([f"{file} (AMENDS_PARTICIPANTS_FILE) is no TOML: {error}; correct it."]) from error
    faults += [
        f"{file}: {quote(key)} is not known here: each participant has a table [{TABLE}.NAME]."
        for key in content
        if key != TABLE
    ]
    tables = content.get(TABLE, {})
    if not isinstance(tables, dict):
        faults.append(f"{file}: {TABLE} is no table: each participant has a table [{TABLE}.NAME].")
        return {}
    return cast("dict[str, Any]", tables)


class _Reading:
    """One participant's table."""

    def __init__(self, file: Path, participant: str, limit_bytes: int) -> None:
        self.faults: list[str] = []
        self._file = file
        self._participant = participant
        self._limit_bytes = limit_bytes

    def request(self, table: Any) -> StaticRequest | None:  # Any: see `_tables`
        """The participant as it is asked for; None, and faults, if it can't be."""
        if not isinstance(table, dict):
            self._fault("", f"is no table: write [{TABLE}.{self._participant}] and its keys below")
            return None
        message = pb.RegisterParticipantRequest(name=self._participant)
        message.connection.SetInParent()
        for key, value in cast("dict[str, Any]", table).items():
            if key not in KINDS:
                self._fault(key, f"is no key of a participant; those are {', '.join(KINDS)}")
            elif not KINDS[key][1](value):  # what it is isn't repeated: it may be a secret in the wrong place
                self._fault(key, f"must be {KINDS[key][0]}")
            else:
                self._read(message, key, value)
        if self.faults:
            return None
        checks = Checks()
        request = checked_static(checks, message, limit_bytes=self._limit_bytes)
        try:
            checks.raise_if_any()
        except InvalidRequestError as error:
            for fault in error.faults:
                self._fault(fault.path.removeprefix("connection."), fault.description)
            return None
        return request

    def _read(self, message: pb.RegisterParticipantRequest, key: str, value: Any) -> None:  # Any: see `_tables`
        connection = message.connection
        match key:
            case "services":
                message.services.extend(value)
            case "descriptors":
                self._read_descriptors(message, value)
            case "headers":
                connection.headers.update(value)
            case "tls":
                self._read_tls(connection.tls, value)
            case _:
                setattr(connection, key, value)

    def _read_tls(self, tls: pb.TlsOptions, table: dict[str, str]) -> None:
        tls.SetInParent()
        for key, text in table.items():
            if key in TLS_KEYS:
                setattr(tls, key, text)
            else:
                self._fault(f"tls.{key}", f"is no key of TLS; those are {', '.join(TLS_KEYS)}")

    def _read_descriptors(self, message: pb.RegisterParticipantRequest, name: str) -> None:
        path = self._file.parent / name
        if "\0" in name:
            self._fault("descriptors", "names no file")
            return
        try:
            with path.open("rb") as opened:
                content = opened.read(self._limit_bytes + 1)
        except OSError as error:
            self._fault("descriptors", f"{path} can't be read ({error.strerror}); correct the path or its rights")
            return
        if len(content) > self._limit_bytes:
            self._fault("descriptors", f"{path} has more than {self._limit_bytes} bytes (AMENDS_PAYLOAD_LIMIT_BYTES)")
            return
        with suppress(DecodeError):
            message.descriptors.CopyFrom(FileDescriptorSet.FromString(content))
        if not message.descriptors.file:
            self._fault(
                "descriptors",
                f"{path} holds no descriptors; `protoc --include_imports --descriptor_set_out={name} …` makes it",
            )

    def _fault(self, key: str, sentence: str) -> None:
        where = f"[{TABLE}.{self._participant}]"
        self.faults.append(f"{self._file}: {where}{f' {key}' if key else ''}: {sentence}.")
