"""The page on participants: the servers that it tells its reader to write take steps, and end when they are told to."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import TYPE_CHECKING

import grpc
import pytest

from shop.inventory.v1.inventory_pb2 import ReleaseRequest, ReserveRequest
from shop.inventory.v1.inventory_pb2_grpc import InventoryServiceStub
from tests.docs.pages import CHECKOUT, named_files
from tests.docs.test_third_party_page import free_port
from tests.integration.participant.calls import as_step
from tests.integration.participant.registry import Registry, serving_registry

if TYPE_CHECKING:
    from pathlib import Path

PAGE = CHECKOUT / "docs" / "participants.md"
UUID = "8a6e0804-2bd0-5672-b79d-d97027f9071a"


@pytest.mark.parametrize("name", ["inventory_server.py", "inventory_in_threads.py"])
async def test_a_server_of_ones_own_takes_steps(name: str, tmp_path: Path) -> None:
    """S4, L1: announced, called, refusing with a reason, and taken out again with exit code 0."""
    registry, port = Registry(), free_port()
    async with asyncio.timeout(60), serving_registry(registry) as coordinator:
        text = (
            named_files(PAGE)[name].replace("localhost:7070", f"127.0.0.1:{coordinator}").replace(":7201", f":{port}")
        )
        (tmp_path / name).write_text(text)
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-W", "error", str(tmp_path / name)),
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            instance = (await registry.registered.get()).instance
            assert instance.address == f"127.0.0.1:{port}"
            async with grpc.aio.insecure_channel(instance.address) as channel:
                stub = InventoryServiceStub(channel)
                done = await stub.Reserve(ReserveRequest(quantity=1), metadata=as_step("order-1"), timeout=10)
                assert done.reservation_id == UUID
                await stub.Release(ReleaseRequest(), metadata=as_step("order-2"), timeout=10)
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await stub.Reserve(ReserveRequest(quantity=11), metadata=as_step("order-3"), timeout=10)
                assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
                assert refused.value.details() == "there are only 10"
            process.terminate()
            _, errors = await process.communicate()
            assert (process.returncode, errors) == (0, b"")
            assert (await registry.next_deregistered()).instance_id == instance.instance_id
        finally:
            if process.returncode is None:
                process.kill()
                await process.communicate()
