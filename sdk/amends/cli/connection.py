"""Speaks to a coordinator over its public API and turns every way in which that can fail into plain words."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from typing import Annotated, TypeVar

import grpc
import typer
from google.protobuf.message import DecodeError
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo  # type: ignore[import-untyped]  # has no py.typed
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]  # has no py.typed

from amends.cli.errors import CommandError
from amends.cli.formats import cut
from amends.coordinator_calls import CHANNEL_OPTIONS
from amends.v1.operator_service_pb2_grpc import OperatorServiceStub
from amends.v1.registry_service_pb2_grpc import RegistryServiceStub
from amends.v1.saga_service_pb2_grpc import SagaServiceStub

# A call that isn't answered for so long is given up; waiting for a saga's end adds to it.
CALL_TIMEOUT_S = 10.0
HOST_AND_PORT = re.compile(r"(?:\[[0-9A-Fa-f:.%]+\]|[^\s:/\[\]]+):(?P<port>\d{1,5})")
RESOLVED_BY_GRPC = ("dns:", "ipv4:", "ipv6:", "unix:")
LOOPBACK = ("localhost:", "127.", "[::1]:")
BROKEN_OFF = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED)
"""How calls end that nobody answered: the coordinator may have done it, and may be back soon."""

ADVICE = {
    "INVALID_PAYLOAD": "Send what the definition's input type describes.",
    "SAGA_NOT_FOUND": "`amends saga list` shows those there are.",
    "DEFINITION_NOT_FOUND": "The program that uses a definition registers it: check the name, or run that first.",
    "DEAD_LETTER_NOT_FOUND": "`amends deadletter list` shows those there are; also check the coordinator's address.",
    "DEAD_LETTER_CLOSED": "`amends saga get` shows how the saga stands.",
    "NOTHING_TO_REPEAT": "Find out what became of it, then `amends deadletter resolve`.",
    "RETRY_OUT_OF_ORDER": "`amends saga get` shows what is left; settle the newest step first.",
    "KEY_EXPIRED": "Find out what became of it, then `amends deadletter resolve`; --force calls it all the same.",
    "RESPONSE_REQUIRED": "Give it with --response JSON.",
    "ACTION_HAPPENED": "`amends saga get` shows how the saga stands.",
    "SAGA_BUSY": "Nothing was changed; try again.",
    "TOO_MANY_WATCHERS": "`amends saga list` and `amends saga get` show how sagas stand; or try again later.",
    "LEDGER_UNAVAILABLE": "Nothing was stored; try again.",
    "STOPPING": "Try again; the next coordinator answers.",
    "COORDINATOR_FAULT": "The coordinator's log says more.",
}

Coordinator = Annotated[
    str,
    typer.Option(envvar="AMENDS_COORDINATOR", metavar="HOST:PORT", help="Address of the coordinator."),
]
DEFAULT_COORDINATOR = "localhost:7070"

Detail = TypeVar("Detail", ErrorInfo, BadRequest)


@asynccontextmanager
async def sagas_at(address: str) -> AsyncGenerator[SagaServiceStub]:
    """The saga service of the coordinator at `address`; refused and failed calls leave it as a `CommandError`."""
    async with _channel_to(address) as channel:
        yield SagaServiceStub(channel)


@asynccontextmanager
async def operator_at(address: str) -> AsyncGenerator[OperatorServiceStub]:
    """The operator service of the coordinator at `address`, in the same way."""
    async with _channel_to(address) as channel:
        yield OperatorServiceStub(channel)


@asynccontextmanager
async def participants_at(address: str) -> AsyncGenerator[RegistryServiceStub]:
    """The registry of participants of the coordinator at `address`, in the same way."""
    async with _channel_to(address) as channel:
        yield RegistryServiceStub(channel)


@asynccontextmanager
async def _channel_to(address: str) -> AsyncGenerator[grpc.aio.Channel]:
    target = checked_address(address)
    proxy = [("grpc.enable_http_proxy", 0)] if target.startswith(LOOPBACK) else []
    async with grpc.aio.insecure_channel(target, options=[*CHANNEL_OPTIONS, *proxy]) as channel:
        try:
            yield channel
        except grpc.aio.AioRpcError as error:
            raise CommandError(*explain(error, address)) from error


def checked_address(address: str) -> str:
    """The address, if it can be one."""
    if address.startswith(RESOLVED_BY_GRPC):
        return address
    found = HOST_AND_PORT.fullmatch(address)
    if found is None or not 0 < int(found["port"]) < 65_536:
        raise CommandError(
            f"{cut(address)!r} is no address of a coordinator.",
            f"Write HOST:PORT, for example {DEFAULT_COORDINATOR}, with --coordinator or in AMENDS_COORDINATOR.",
        )
    return address


def reason_of(error: grpc.aio.AioRpcError) -> str:
    """The `ErrorReason` that the coordinator gave, without its prefix; empty if the answer is not a coordinator's."""
    for info in _details(error, ErrorInfo):
        if info.domain == "amends":
            reason: str = info.reason
            return reason
    return ""


def explain(error: grpc.aio.AioRpcError, address: str) -> Iterator[str]:
    """What went wrong, where, and what to do now."""
    reason, said = reason_of(error), cut(error.details() or "", 2_048)
    if reason:
        yield f"the coordinator at {address} refused: {said} ({reason})"
        for request in _details(error, BadRequest):
            for violation in request.field_violations:
                if violation.description in said:
                    continue  # as it is where there is only one
                yield f"  {cut(violation.field)}: {cut(violation.description, 512)}"
        if reason in ADVICE:
            yield ADVICE[reason]
        return
    match error.code():
        case grpc.StatusCode.UNAVAILABLE:
            yield f"no coordinator answers at {address}: {said}"
            yield "Start one with `amends dev`, or name its address with --coordinator or in AMENDS_COORDINATOR."
        case grpc.StatusCode.UNIMPLEMENTED:
            yield f"what answers at {address} is no amends coordinator, or an older one: {said}"
            yield "Check the address that --coordinator or AMENDS_COORDINATOR names."
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            yield f"the coordinator at {address} did not answer in time ({CALL_TIMEOUT_S:g} s)."
            yield "Check the address and the coordinator's health, then try again."
        case code:
            yield f"the call to {address} failed with {code.name}: {said}"
            yield "Check the address; if it is right, the coordinator's log says more."


def _details(error: grpc.aio.AioRpcError, kind: type[Detail]) -> Iterator[Detail]:
    """The standard details of that kind in an answer; none if they can't be read."""
    for key, value in error.trailing_metadata():
        if key == "grpc-status-details-bin" and isinstance(value, bytes):
            try:
                for packed in Status.FromString(value).details:
                    detail = kind()
                    if packed.Unpack(detail):
                        yield detail
            except DecodeError:
                return
