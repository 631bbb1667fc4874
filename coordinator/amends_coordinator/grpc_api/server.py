"""The gRPC server: its services, its one port, and the order in which it stops."""

from __future__ import annotations

import errno
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

import grpc
from google.protobuf import empty_pb2, field_mask_pb2, struct_pb2, wrappers_pb2
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]  # has stubs, but no py.typed

from amends.v1 import error_reason_pb2
from amends_coordinator.grpc_api.gate import Gate
from amends_coordinator.grpc_api.health import HEALTH_FILE, HEALTH_SERVICE, Health
from amends_coordinator.grpc_api.known_types import KnownTypes
from amends_coordinator.grpc_api.reflection import Reflection, own_files
from amends_coordinator.grpc_api.services import PUBLIC_SERVICES, all_handlers

if TYPE_CHECKING:
    from amends_coordinator.definitions.catalog import Catalog
    from amends_coordinator.engine.registry import Registry
    from amends_coordinator.engine.static_participants import StaticParticipants
    from amends_coordinator.ports.clock import Clock
    from amends_coordinator.ports.driving import Driving, Operating
    from amends_coordinator.ports.ledger import Ledger
    from amends_coordinator.ports.telemetry import Telemetry

SERVED_FILES = (
    *(service.file for service in PUBLIC_SERVICES),
    error_reason_pb2.DESCRIPTOR,
    HEALTH_FILE,
    # Details of errors, and types of protobuf's own that a payload may hold although none of ours does.
    *(
        module.DESCRIPTOR
        for module in (error_details_pb2, status_pb2, empty_pb2, field_mask_pb2, struct_pb2, wrappers_pb2)
    ),
)

MESSAGE_LIMIT_BYTES = 4 << 20
"""The greatest request that gRPC reads at all, unless four payloads are larger: gRPC's own default."""

LAST_ANSWERS_S = 0.5
"""How long the last answers may take to be sent once nothing is being worked on; open streams end with it."""


class CannotListenError(Exception):
    """The server can't have its address. The message says why and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiSettings:
    """Where the server listens (port 0: a free one), the ledger's name, and the greatest size of a payload in bytes."""

    host: str
    port: int
    ledger_name: str
    payload_limit_bytes: int


class Api:
    """The server of one coordinator. `bind` it, `start` it, `stop` it; to be made on the running event loop."""

    def __init__(  # noqa: PLR0913 - what the services are wired with, each given by name
        self,
        settings: ApiSettings,
        *,
        driving: Driving,
        operating: Operating,
        ledger: Ledger,
        registry: Registry,
        statics: StaticParticipants,
        catalog: Catalog,
        clock: Clock,
        telemetry: Telemetry,
    ) -> None:
        self._settings = settings
        self._gate = Gate()
        self._waits_to_start = False
        self._server = grpc.aio.server(options=_options(settings))
        handlers = all_handlers(
            gate=self._gate,
            driving=driving,
            operating=operating,
            ledger=ledger,
            registry=registry,
            statics=statics,
            catalog=catalog,
            clock=clock,
            telemetry=telemetry,
            ledger_name=settings.ledger_name,
            payload_limit_bytes=settings.payload_limit_bytes,
        )
        self._server.add_generic_rpc_handlers(handlers)
        names = [service.full_name for service in PUBLIC_SERVICES]
        self.health = Health(self._server, names)
        types = KnownTypes(own_files(SERVED_FILES), registry=registry, ledger=ledger)
        self._server.add_generic_rpc_handlers(Reflection((*names, HEALTH_SERVICE), types).handlers())

    def bind(self) -> int:
        """Take the port, without answering on it yet; answers its number.

        Raises:
            CannotListenError: somebody else has it, or the address is not ours.
        """
        host, port = self._settings.host, self._settings.port
        _probe(host, port)
        try:
            taken = self._server.add_insecure_port(target(host, port))
        except RuntimeError as error:
            raise CannotListenError(f"can't listen on port {port} of {host}; choose another address or port") from error
        self._waits_to_start = True
        return taken

    async def start(self) -> None:
        """Answer requests from now on."""
        await self.health.tell()
        self._waits_to_start = False
        await self._server.start()

    async def stop(self, grace_s: float) -> None:
        """Refuse new requests, let those under way be answered within `grace_s` seconds, then close the port."""
        await self.health.end()
        await self._gate.close(grace_s=grace_s)
        if self._waits_to_start:
            await self._server.start()  # gRPC gives a port back only when the server on it has run; the gate is closed
        await self._server.stop(LAST_ANSWERS_S)


def target(host: str, port: int) -> str:
    """HOST:PORT as gRPC and people write it: an IPv6 address in brackets."""
    bare = host.strip("[]")
    return f"[{bare}]:{port}" if ":" in bare else f"{bare}:{port}"


def _options(settings: ApiSettings) -> list[tuple[str, int]]:
    return [
        # Off, so that a second process gets an error instead of half of the connections.
        ("grpc.so_reuseport", 0),
        ("grpc.max_receive_message_length", max(MESSAGE_LIMIT_BYTES, 4 * settings.payload_limit_bytes)),
        # Clients that wait for a saga may ask every 5 s whether we are alive without being turned away.
        ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
        ("grpc.keepalive_permit_without_calls", 1),
    ]


def _probe(host: str, port: int) -> None:
    """Find out why a port can't be had: gRPC says only that it can't."""
    bare = host.strip("[]")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(bare, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as tried:
            tried.setsockopt(
                socket.SOL_SOCKET, socket.SO_REUSEADDR, 1
            )  # as gRPC does: a closed connection is no hindrance
            tried.bind(address)
    except socket.gaierror as error:
        raise CannotListenError(f"{host} is no address of this machine; choose another (AMENDS_HOST)") from error
    except OSError as error:
        raise CannotListenError(_why(error, host, port)) from error


def _why(error: OSError, host: str, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"port {port} on {host} is already taken; stop the process that has it, or choose another port "
            "(--port or AMENDS_PORT; 0 takes a free one)"
        )
    if error.errno == errno.EACCES:
        return (
            f"port {port} on {host} needs rights that this process has not; choose one above 1023 (--port or "
            "AMENDS_PORT)"
        )
    return f"can't listen on port {port} of {host} ({error.strerror}); choose another address (AMENDS_HOST)"
