"""A payment company as a process of its own that has never heard of sagas: `python -m tests.scenarios.third_party`.

It dedupes on a field of its own requests, says ALREADY_EXISTS to a repeat and NOT_FOUND where there is nothing, and
reads nothing of what the coordinator sends beside the request. What it does depends on the account:

    declined       refuses for good
    down           answers UNAVAILABLE before it does anything
    lost-answer    charges, and never answers the request that did it
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from pathlib import Path
from typing import Any, TypeAlias

import grpc

# grpcio-reflection ships no types.
from grpc_reflection.v1alpha import reflection  # type: ignore[import-untyped]  # ships no types

from acme.v1 import charges_pb2, charges_pb2_grpc
from acme.v1.charges_pb2 import (
    Charge,
    CreateChargeRequest,
    GetChargeRequest,
    RefundChargeRequest,
    RefundChargeResponse,
)

Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]  # their messages are not read through it
SERVICE = charges_pb2.DESCRIPTOR.services_by_name["ChargeService"].full_name


class Charges(charges_pb2_grpc.ChargeServiceServicer):
    """Keeps its charges in files, one for each request id, so that they outlive the process.

    Args:
        folder: where they are.
        credentials: metadata that every call has to bring.
    """

    def __init__(self, folder: Path, credentials: dict[str, str]) -> None:
        self._folder = folder
        self._credentials = credentials

    async def CreateCharge(self, request: CreateChargeRequest, context: Context) -> Charge:
        """Charge an account."""
        await self._admit(context)
        if request.account == "declined":
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "the card was declined")
        if request.account == "down":
            await context.abort(grpc.StatusCode.UNAVAILABLE, "we are very sorry")
        if self._read(request.request_id) is not None:
            await context.abort(grpc.StatusCode.ALREADY_EXISTS, "this request was served before")
        charge = Charge(charge_id=f"ch-{request.request_id[:8]}", price=request.price)
        charge.create_time.GetCurrentTime()
        self._write(request.request_id, charge)
        if request.account == "lost-answer":
            await asyncio.Event().wait()
        return charge

    async def GetCharge(self, request: GetChargeRequest, context: Context) -> Charge:
        """Tell of a charge."""
        await self._admit(context)
        return await self._found(request.request_id, context)

    async def RefundCharge(self, request: RefundChargeRequest, context: Context) -> RefundChargeResponse:
        """Give the money back."""
        await self._admit(context)
        charge = await self._found(request.request_id, context)
        charge.refunded = True
        self._write(request.request_id, charge)
        return RefundChargeResponse()

    async def _admit(self, context: Context) -> None:
        brought = {key: value for key, value in context.invocation_metadata() or ()}  # noqa: C416 - `dict` would take it for a mapping
        if any(brought.get(key) != value for key, value in self._credentials.items()):
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "who are you?")

    async def _found(self, request_id: str, context: Context) -> Charge:
        charge = self._read(request_id)
        if charge is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, "we know of no such charge")
            raise AssertionError("abort always raises")
        return charge

    def _read(self, request_id: str) -> Charge | None:
        file = self._folder / f"{request_id}.charge"
        return Charge.FromString(file.read_bytes()) if file.exists() else None

    def _write(self, request_id: str, charge: Charge) -> None:
        (self._folder / f"{request_id}.charge").write_bytes(charge.SerializeToString())


async def serve(arguments: argparse.Namespace) -> None:
    """Serve until SIGTERM."""
    credentials = dict(pair.split("=", 1) for pair in arguments.expect)
    server = grpc.aio.server(options=(("grpc.so_reuseport", 0),))
    charges_pb2_grpc.add_ChargeServiceServicer_to_server(Charges(arguments.data, credentials), server)
    if not arguments.silent:
        names = (SERVICE, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, server)
    address = f"127.0.0.1:{arguments.port}"
    if arguments.certificate:
        pair = (arguments.key.read_bytes(), arguments.certificate.read_bytes())
        clients = arguments.client_ca.read_bytes() if arguments.client_ca else None
        secured = grpc.ssl_server_credentials([pair], clients, require_client_auth=clients is not None)
        port = server.add_secure_port(address, secured)
    else:
        port = server.add_insecure_port(address)
    await server.start()
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    print(f"listening on 127.0.0.1:{port}", flush=True)  # noqa: T201 - the parent waits for this line.
    await stopping.wait()
    await server.stop(0)


def main() -> None:
    """Read the arguments and serve."""
    if any(name.split(".")[0] in ("amends", "amends_coordinator") for name in sys.modules):
        raise AssertionError("a third party knows nothing of us")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--data", type=Path, required=True, help="where its charges are")
    parser.add_argument("--silent", action="store_true", help="without server reflection")
    parser.add_argument("--certificate", type=Path, help="speak TLS with this certificate")
    parser.add_argument("--key", type=Path, help="and this key")
    parser.add_argument("--client-ca", type=Path, help="and demand a certificate by this authority")
    parser.add_argument("--expect", action="append", default=[], metavar="KEY=VALUE", help="metadata of every call")
    asyncio.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
