"""The services, put together: what a server serves, and what a rehearsal calls without one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amends.v1 import operator_service_pb2, registry_service_pb2, saga_service_pb2
from amends_coordinator.grpc_api.handlers import Edge, service_handler
from amends_coordinator.grpc_api.known_definitions import KnownDefinitions
from amends_coordinator.grpc_api.operator_service import OperatorService
from amends_coordinator.grpc_api.registry_service import RegistryService
from amends_coordinator.grpc_api.saga_service import SagaService
from amends_coordinator.grpc_api.start_stream import StartStreams
from amends_coordinator.grpc_api.starting import Starting

if TYPE_CHECKING:
    from collections.abc import Sequence

    import grpc
    from google.protobuf.descriptor import ServiceDescriptor

    from amends_coordinator.definitions.catalog import Catalog
    from amends_coordinator.engine.registry import Registry
    from amends_coordinator.engine.static_participants import StaticParticipants
    from amends_coordinator.grpc_api.gate import Gate
    from amends_coordinator.ports.clock import Clock
    from amends_coordinator.ports.driving import Driving, Operating
    from amends_coordinator.ports.ledger import Ledger
    from amends_coordinator.ports.telemetry import Telemetry

SAGA_SERVICE: ServiceDescriptor = saga_service_pb2.DESCRIPTOR.services_by_name["SagaService"]
REGISTRY_SERVICE: ServiceDescriptor = registry_service_pb2.DESCRIPTOR.services_by_name["RegistryService"]
OPERATOR_SERVICE: ServiceDescriptor = operator_service_pb2.DESCRIPTOR.services_by_name["OperatorService"]
PUBLIC_SERVICES = (SAGA_SERVICE, REGISTRY_SERVICE, OPERATOR_SERVICE)


def all_handlers(  # noqa: PLR0913 - what the services are wired with, each given by name
    *,
    gate: Gate,
    driving: Driving,
    operating: Operating,
    ledger: Ledger,
    registry: Registry,
    statics: StaticParticipants,
    catalog: Catalog,
    clock: Clock,
    telemetry: Telemetry,
    ledger_name: str,
    payload_limit_bytes: int,
) -> Sequence[grpc.GenericRpcHandler]:
    """The handlers of the public services, in the order of `PUBLIC_SERVICES`, and that of the one for our own client.
    Reflection and health name only what people may call, so it isn't in that order.
    """
    definitions = KnownDefinitions(ledger=ledger, catalog=catalog)
    starting = Starting(
        driving=driving, ledger=ledger, definitions=definitions, payload_limit_bytes=payload_limit_bytes
    )
    sagas = SagaService(
        driving=driving,
        operating=operating,
        ledger=ledger,
        registry=registry,
        definitions=definitions,
        starting=starting,
        clock=clock,
        ledger_name=ledger_name,
    )
    operators = OperatorService(
        operating=operating, ledger=ledger, definitions=definitions, payload_limit_bytes=payload_limit_bytes
    )
    participants = RegistryService(registry=registry, statics=statics, payload_limit_bytes=payload_limit_bytes)
    servicers = (sagas, participants, operators)
    edge = Edge(gate, telemetry)
    public = [
        service_handler(service, servicer, edge) for service, servicer in zip(PUBLIC_SERVICES, servicers, strict=True)
    ]
    return [*public, StartStreams(starting, edge).handler()]
