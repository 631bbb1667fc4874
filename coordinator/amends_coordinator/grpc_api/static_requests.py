"""Checks what is said of a static participant, wherever it is said: in a request, or in the participants' file."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from amends_coordinator.definitions.errors import quote
from amends_coordinator.engine.connections import connection_of
from amends_coordinator.engine.static_participants import StaticRequest
from amends_coordinator.grpc_api.validation import ADDRESS, NAME
from amends_coordinator.ports.connections import SECRET_NAME

if TYPE_CHECKING:
    from collections.abc import Mapping

    from amends.v1 import registry_service_pb2 as pb
    from amends_coordinator.grpc_api.validation import Checks

RESOLVED = ("dns:///", "dns:")
"""What may stand in front of HOST:PORT: the name is looked up anew when a connection is lost."""

SERVER_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._:-]{0,251}[A-Za-z0-9])?")
HEADER_KEY = re.compile(r"[a-z0-9_.-]{1,128}")
HEADER_VALUE = re.compile(r"[\x20-\x7e]{0,1024}")
HEADER_COUNT_LIMIT = 16
OUR_PREFIXES = ("amends-", "grpc-", "idempotency-")
TAKEN_HEADERS = frozenset(
    ("connection", "content-type", "host", "te", "traceparent", "tracestate", "transfer-encoding", "user-agent")
)
"""What HTTP, gRPC or the coordinator itself sets on every call."""


def checked_static(checks: Checks, request: pb.RegisterParticipantRequest, *, limit_bytes: int) -> StaticRequest:
    """A static participant as it is asked for; what is wrong with it is noted."""
    connection = request.connection
    _check_target(checks, connection.target)
    _check_tls(checks, connection)
    _check_headers(checks, connection.headers)
    if "authorization" in connection.headers and connection.token_file:
        checks.fault("connection.headers['authorization']", "goes with every call already: leave it out, or token_file")
    checks.capacity("connection.capacity", connection.capacity)
    descriptors = request.descriptors if request.HasField("descriptors") else None
    if descriptors is not None:
        checks.size("descriptors", descriptors.ByteSize(), limit_bytes=limit_bytes)
    services = tuple(request.services)
    return StaticRequest(
        participant=checks.text("name", request.name, NAME, example="bank"),
        services=checks.services("services", services) if services else (),
        descriptors=descriptors,
        connection=connection_of(connection),
    )


def _check_target(checks: Checks, target: str) -> None:
    path = "connection.target"
    if not target:
        checks.fault(path, "is required, for example 'bank.example:443'")
        return
    scheme = next((each for each in RESOLVED if target.startswith(each)), "")
    found = ADDRESS.fullmatch(target[len(scheme) :])
    if not found or not 1 <= int(found[3]) <= 65_535:
        checks.fault(path, f"{quote(target)} is not HOST:PORT or dns:///HOST:PORT, for example 'bank.example:443'")


def _check_tls(checks: Checks, connection: pb.StaticConnection) -> None:
    tls = connection.tls
    files = {
        "connection.tls.ca_file": tls.ca_file,
        "connection.tls.client_certificate_file": tls.client_certificate_file,
        "connection.tls.client_key_file": tls.client_key_file,
        "connection.token_file": connection.token_file,
    }
    for path, name in files.items():
        if name and not SECRET_NAME.fullmatch(name):
            checks.fault(path, f"{quote(name)} is no plain file name: it names a file in AMENDS_SECRETS_DIR itself")
    if bool(tls.client_certificate_file) != bool(tls.client_key_file):
        missing = "client_key_file" if tls.client_certificate_file else "client_certificate_file"
        checks.fault(f"connection.tls.{missing}", "is required: a certificate and its key go together")
    if tls.server_name and not SERVER_NAME.fullmatch(tls.server_name):
        checks.fault("connection.tls.server_name", f"{quote(tls.server_name)} is no name of a host")
    if connection.token_file and not connection.HasField("tls"):
        checks.fault("connection.token_file", "needs TLS: a token is never sent in plain text; set tls, too")


def _check_headers(checks: Checks, headers: Mapping[str, str]) -> None:
    if len(headers) > HEADER_COUNT_LIMIT:
        checks.fault("connection.headers", f"has {len(headers)} headers; at most {HEADER_COUNT_LIMIT}")
    for key, value in sorted(headers.items())[: HEADER_COUNT_LIMIT + 1]:
        path = f"connection.headers[{quote(key)}]"
        if not HEADER_KEY.fullmatch(key):
            checks.fault(path, f"the key is not of the form {HEADER_KEY.pattern}: write it in lower case")
        elif key.startswith(OUR_PREFIXES) or key in TAKEN_HEADERS:
            checks.fault(path, "is set by gRPC or by the coordinator itself; leave it out")
        elif key.endswith("-bin"):
            checks.fault(path, "a key that ends in -bin means bytes, and only text is sent; choose another")
        if not HEADER_VALUE.fullmatch(value):
            # The value isn't repeated: whatever it is meant for, it may be a secret.
            checks.fault(path, "the value is not printable ASCII of at most 1,024 characters")
