"""How static participants are reached, between the values of the port and the bytes that the ledger keeps."""

from __future__ import annotations

from amends.v1 import registry_service_pb2 as pb
from amends_coordinator.ports.connections import StaticConnection, TlsOptions


def connection_of(message: pb.StaticConnection) -> StaticConnection:
    """A message as a value."""
    tls = message.tls if message.HasField("tls") else None
    return StaticConnection(
        target=message.target,
        tls=None
        if tls is None
        else TlsOptions(
            ca_file=tls.ca_file,
            client_certificate_file=tls.client_certificate_file,
            client_key_file=tls.client_key_file,
            server_name=tls.server_name,
        ),
        headers=tuple(sorted(message.headers.items())),
        token_file=message.token_file,
        capacity=message.capacity,
    )


def connection_message(connection: StaticConnection) -> pb.StaticConnection:
    """A value as a message, values of headers included."""
    message = pb.StaticConnection(
        target=connection.target,
        headers=dict(connection.headers),
        token_file=connection.token_file,
        capacity=connection.capacity,
    )
    if connection.tls is not None:
        message.tls.CopyFrom(
            pb.TlsOptions(
                ca_file=connection.tls.ca_file,
                client_certificate_file=connection.tls.client_certificate_file,
                client_key_file=connection.tls.client_key_file,
                server_name=connection.tls.server_name,
            )
        )
    return message


def connection_to_bytes(connection: StaticConnection) -> bytes:
    """As the ledger keeps it."""
    return connection_message(connection).SerializeToString(deterministic=True)


def connection_from_bytes(stored: bytes) -> StaticConnection:
    """As the ledger kept it."""
    return connection_of(pb.StaticConnection.FromString(stored))
