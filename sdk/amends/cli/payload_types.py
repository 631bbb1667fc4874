"""Asks the coordinator for the types of a saga's payloads."""

from __future__ import annotations

import grpc
from google.protobuf.descriptor_pool import DescriptorPool

from amends.cli.connection import CALL_TIMEOUT_S
from amends.cli.errors import CommandError
from amends.cli.payloads import pool_of
from amends.v1.saga_pb2 import Saga
from amends.v1.saga_service_pb2 import GetSagaDefinitionRequest
from amends.v1.saga_service_pb2_grpc import SagaServiceStub


async def types_of(sagas: SagaServiceStub, saga: Saga) -> DescriptorPool:
    """The types of the saga's payloads; none if its definition can't be had, then they are shown as bytes."""
    return await types_at_hand(sagas, saga) or DescriptorPool()


async def types_at_hand(sagas: SagaServiceStub, saga: Saga) -> DescriptorPool | None:
    """The same; None if its definition can't be had now."""
    request = GetSagaDefinitionRequest(name=saga.definition_name, version=saga.definition_version)
    try:
        return pool_of((await sagas.GetSagaDefinition(request, timeout=CALL_TIMEOUT_S)).definition)
    except (grpc.aio.AioRpcError, CommandError):
        return None
