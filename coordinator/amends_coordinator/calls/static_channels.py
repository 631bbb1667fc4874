"""Opens channels to static participants, and says what goes with every call over them."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import TYPE_CHECKING

import grpc.aio

from amends_coordinator.calls.secrets import SecretError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from amends_coordinator.calls.secrets import Secrets
    from amends_coordinator.ports.connections import StaticConnection, TlsOptions


AUTHORITIES_REMEMBERED = 32
"""Of so many files with authorities it is known whether they are any."""


@dataclass(frozen=True, slots=True)
class Material:
    """What the directory of secrets has for a connection just now.

    `files` are the contents of the TLS options' files: a channel is good for as long as they are the same. `metadata`
    goes with every call.
    """

    files: tuple[bytes, ...] = field(repr=False)
    metadata: tuple[tuple[str, str], ...] = field(repr=False)


def material(connection: StaticConnection, secrets: Secrets) -> Material:
    """Read what a connection needs.

    Raises:
        SecretError: a file can't be had.
    """
    names = connection.tls.files() if connection.tls is not None else ()
    files = tuple(secrets.content(name) if name else b"" for name in names)
    metadata = connection.headers
    if connection.token_file and connection.tls is not None:  # never in plain text
        metadata = (*metadata, ("authorization", f"Bearer {secrets.token(connection.token_file)}"))
    return Material(files, metadata)


def open_channel(
    connection: StaticConnection, found: Material, secrets: Secrets, options: Sequence[tuple[str, str | int]]
) -> grpc.aio.Channel:
    """A new channel.

    Raises:
        SecretError: a file doesn't hold what it should.
    """
    if connection.tls is None:
        return grpc.aio.insecure_channel(connection.target, options=options)
    check_files(connection.tls, secrets)
    authorities, chain, key = (content or None for content in found.files)
    credentials = grpc.ssl_channel_credentials(authorities, key, chain)
    name = connection.tls.server_name
    named = [("grpc.ssl_target_name_override", name), ("grpc.default_authority", name)] if name else []
    return grpc.aio.secure_channel(connection.target, credentials, options=[*options, *named])


def connection_faults(connection: StaticConnection, secrets: Secrets) -> dict[str, str]:
    """What keeps a connection from being used: sentences by the path of its field."""
    tls = connection.tls
    if tls is None:
        return {}
    needed: dict[str, Callable[[], object]] = {}
    for path, name in zip(("ca_file", "client_certificate_file", "client_key_file"), tls.files(), strict=True):
        if name:
            needed[f"tls.{path}"] = partial(secrets.content, name)
    if connection.token_file:
        needed["token_file"] = partial(secrets.token, connection.token_file)
    # Whether the files fit is worth asking once they are all there.
    return _refusals(needed) or _refusals({"tls": partial(check_files, tls, secrets)})


def _refusals(needed: Mapping[str, Callable[[], object]]) -> dict[str, str]:
    refusals: dict[str, str] = {}
    for path, look in needed.items():
        try:
            look()
        except SecretError as error:
            refusals[path] = str(error)
    return refusals


def check_files(tls: TlsOptions, secrets: Secrets) -> None:
    """Whether the files hold certificates and a key that fit: gRPC itself would say no more than that it can't connect.

    Raises:
        SecretError: one doesn't.
    """
    if tls.ca_file and not _holds_authorities(secrets.content(tls.ca_file)):
        raise SecretError(f"{tls.ca_file} in the directory of secrets holds no certificates of authorities in PEM")
    if tls.client_certificate_file:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        chain, key = secrets.path(tls.client_certificate_file), secrets.path(tls.client_key_file)
        try:
            context.load_cert_chain(chain, key, password=_no_password)
        except (ssl.SSLError, OSError, ValueError) as error:
            raise SecretError(
                f"{tls.client_certificate_file} and {tls.client_key_file} in the directory of secrets are no "
                "certificate chain and its key in PEM, without a password"
            ) from error


@lru_cache(maxsize=AUTHORITIES_REMEMBERED)
def _holds_authorities(content: bytes) -> bool:
    """Whether these are certificates in PEM; what stands between them may be in any language.

    Remembered, because a system's whole list takes 0.2 s to read: on the event loop, with every call that a participant
    is owed whose other files are at fault, that would stop everybody.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(cadata=content.decode("latin-1").encode("ascii", "replace").decode("ascii"))
    except (ssl.SSLError, ValueError):
        return False
    return True


def _no_password() -> str:
    """Nobody is there to type one."""
    raise ValueError("the key has a password")
