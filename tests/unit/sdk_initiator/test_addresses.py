"""Where a client looks for its coordinator: what can be an address, and who answers there."""

from __future__ import annotations

import grpc
import pytest

from amends import InvalidAddressError, NotACoordinatorError, NotYetError, SagaClient


@pytest.mark.parametrize(
    "target",
    ["localhost", "", "localhost:", "localhost:0", "localhost:70700", "http://localhost:7070", "::1", "a b:1", None],
)
def test_what_can_be_no_address_is_refused_at_once(target: str) -> None:
    """Errors: a forgotten port is found where it is forgotten, not by a wait for port 443."""
    with pytest.raises(InvalidAddressError, match=r"is no address .*: write host:port, for example localhost:7070"):
        SagaClient(target)


@pytest.mark.parametrize(
    "target",
    [
        *("localhost:7070", "10.0.0.7:1", "[::1]:7070", "[fe80::1%eth0]:7070", "amends.svc_a:65535"),
        *("unix:/run/amends", "unix:///run/amends", "dns:///amends:7070", "dns:amends", "ipv4:10.0.0.7:70,10.0.0.8:70"),
    ],
)
def test_every_form_of_an_address_is_taken(target: str) -> None:
    """Promise: whatever gRPC can resolve is an address."""
    assert SagaClient(target).target == target


async def test_a_server_that_is_no_coordinator_is_called_so() -> None:
    """Errors: another server at the address is told apart from a coordinator that can't do it yet."""
    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with SagaClient(f"127.0.0.1:{port}") as client:
            with pytest.raises(NotACoordinatorError, match=rf"what listens at 127.0.0.1:{port} doesn't know") as caught:
                await client.get("trip-1")
    finally:
        await server.stop(None)
    assert caught.value.reason == "NOT_A_COORDINATOR"
    assert not isinstance(caught.value, NotYetError)
