"""A call means the same whether its own task makes it or gRPC's."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import grpc
import grpc.aio
import pytest

from amends_coordinator.calls import unary_call
from amends_coordinator.calls.channels import Connection
from amends_coordinator.calls.sending import send
from amends_coordinator.core.answer import Answer
from amends_coordinator.core.states import Outcome
from tests.scenarios.frames import Wire, message, wire_server
from tests.unit.calls.servers import compensation

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

METHOD = "shop.Desk/Sell"
TIMEOUT_S = 30.0

OK, NO, ODD = ((b"grpc-status", b"0"),), ((b"grpc-status", b"9"),), ((b"grpc-status", b"99"),)
SEALED = (b"amends-sealed", b"1")


class Desk(grpc.GenericRpcHandler):
    """Answers as its request says, and remembers the metadata of each call and how it ended."""

    def __init__(self) -> None:
        self.heard: list[dict[str, str | bytes]] = []
        self.began = asyncio.Event()
        self.cancelled = asyncio.Event()

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes]:
        """Every method."""
        return grpc.unary_unary_rpc_method_handler(self._answer)

    async def _answer(self, request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        self.heard.append({key: value for key, value in context.invocation_metadata() or ()})  # noqa: C416 - `dict` would take it for a mapping
        context.set_trailing_metadata((("x-word", "said"), ("x-raw-bin", b"\0\1")))
        if request == b"no":
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "sold out")
        if request == b"late":
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded")
        if request == b"wait":
            self.began.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.cancelled.set()
                raise
        return request[::-1]


@pytest.fixture(params=["its own task", "gRPC's task"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways in which calls are made."""
    monkeypatch.setattr(unary_call, "TRIED", (grpc.__version__,) if request.param == "its own task" else ())


@pytest.fixture
async def desk(way: None) -> AsyncGenerator[tuple[Desk, Connection]]:
    """A server, and the connection to it."""
    handler, server = Desk(), grpc.aio.server()
    server.add_generic_rpc_handlers((handler,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    connection = Connection(grpc.aio.insecure_channel(f"127.0.0.1:{port}"))
    yield handler, connection
    await connection.close()
    await server.stop(None)


def test_the_release_in_use_was_tried() -> None:
    """A release of gRPC that wasn't tried costs each call a task: try it, and add it."""
    assert grpc.__version__.startswith(unary_call.TRIED)


async def test_response_and_trailers(desk: tuple[Desk, Connection]) -> None:
    """Bytes go out and come in as they are, metadata both ways."""
    handler, connection = desk
    response, trailers = await connection.caller(METHOD)(b"abc", TIMEOUT_S, [("x-key", "k-1"), ("x-key-bin", b"\2")])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType] - so that bytes are tried, too
    assert response == b"cba"
    assert dict(list(trailers)) == {"x-word": "said", "x-raw-bin": b"\0\1"}
    assert handler.heard[0]["x-key"] == "k-1"
    assert handler.heard[0]["x-key-bin"] == b"\2"


async def test_an_error_says_what_the_server_said(desk: tuple[Desk, Connection]) -> None:
    """A refusal comes with its code, words and trailers."""
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await desk[1].caller(METHOD)(b"no", TIMEOUT_S, [])
    error = refused.value
    assert (error.code(), error.details()) == (grpc.StatusCode.FAILED_PRECONDITION, "sold out")
    assert dict(list(error.trailing_metadata() or ())) == {"x-word": "said", "x-raw-bin": b"\0\1"}


async def test_a_deadline_ends_the_call(desk: tuple[Desk, Connection]) -> None:
    """The timeout is the call's deadline, at both ends."""
    handler, connection = desk
    with pytest.raises(grpc.aio.AioRpcError) as late:
        await connection.caller(METHOD)(b"wait", 0.05, [])
    assert late.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert handler.began.is_set()
    await asyncio.wait_for(handler.cancelled.wait(), TIMEOUT_S)


async def test_no_answer_in_time_is_told_in_plain_words(desk: tuple[Desk, Connection]) -> None:
    """F02: "Stream removed" says nothing to whoever looks for the service that hangs. What a participant passes on
    before its time is over stays what it is.
    """
    _, connection = desk
    hangs = compensation()._replace(request=b"wait", method=METHOD)
    answer = await send(connection.caller(METHOD), hangs, timeout_s=0.05, ledger_name="test", limit_bytes=1 << 20)
    assert (answer.outcome, answer.status_code) == (Outcome.UNKNOWN, "DEADLINE_EXCEEDED")
    assert answer.message == "no answer within 0.05 s"
    late = compensation()._replace(request=b"late", method=METHOD)
    answer = await send(connection.caller(METHOD), late, timeout_s=TIMEOUT_S, ledger_name="test", limit_bytes=1 << 20)
    assert (answer.status_code, answer.message) == ("DEADLINE_EXCEEDED", "Deadline Exceeded")


async def test_cancelling_the_task_cancels_the_call(desk: tuple[Desk, Connection]) -> None:
    """Whoever stops waiting for an answer stops the call at the server (the port's guarantee)."""
    handler, connection = desk
    task = asyncio.ensure_future(connection.caller(METHOD)(b"wait", TIMEOUT_S, []))
    await asyncio.wait_for(handler.began.wait(), TIMEOUT_S)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.wait_for(handler.cancelled.wait(), TIMEOUT_S)


async def test_closing_the_channel_ends_its_calls(desk: tuple[Desk, Connection]) -> None:
    """Nobody waits for a call over a channel that was closed, and its task isn't cancelled for it."""
    handler, connection = desk
    heard: list[BaseException] = []

    async def one() -> str:
        try:
            await connection.caller(METHOD)(b"wait", TIMEOUT_S, [])
        except asyncio.CancelledError as error:
            heard.append(error)
        return "went on"

    task = asyncio.create_task(one())
    await asyncio.wait_for(handler.began.wait(), TIMEOUT_S)
    await connection.close()
    assert await asyncio.wait_for(task, TIMEOUT_S) == "went on"
    assert len(heard) == 1
    with pytest.raises(grpc.aio.UsageError):
        await connection.caller(METHOD)(b"abc", TIMEOUT_S, [])


async def test_nobody_listens(way: None) -> None:
    """A server that isn't there is an error like another one."""
    connection = Connection(grpc.aio.insecure_channel("127.0.0.1:1"))
    with pytest.raises(grpc.aio.AioRpcError) as gone:
        await connection.caller(METHOD)(b"abc", TIMEOUT_S, [])
    assert gone.value.code() is grpc.StatusCode.UNAVAILABLE
    assert gone.value.details()
    await connection.close()


@pytest.mark.parametrize(
    ("wire", "outcome"),
    [
        (Wire(trailers=OK), Outcome.UNKNOWN),
        (Wire(body=message(b"a", length=9), trailers=OK), Outcome.UNKNOWN),
        (Wire(body=message(b"a"), reset=0), Outcome.UNKNOWN),
        (Wire(body=message(b"a"), trailers=(*NO, SEALED)), Outcome.REJECTED_SEALED),
        (Wire(body=message(b"a"), trailers=(*ODD, SEALED)), Outcome.UNKNOWN),
    ],
    ids=["no message", "half a message", "no status", "a message and a no", "a code that there isn't"],
)
async def test_what_no_grpc_library_would_say(way: None, wire: Wire, outcome: Outcome) -> None:
    """S4: only a whole message with OK is a success, and only a code that is a clear no is one."""
    async with wire_server(wire) as address:
        connection = Connection(grpc.aio.insecure_channel(address))
        answer = await ask(connection)
        await connection.close()
    assert (answer.outcome, answer.response) == (outcome, None)


async def test_a_code_that_there_is_not_is_named(way: None) -> None:
    """S4: nothing is known about such a call, and who reads of it learns what the participant did."""
    async with wire_server(Wire(trailers=(*ODD, SEALED))) as address:
        connection = Connection(grpc.aio.insecure_channel(address))
        answer = await ask(connection)
        await connection.close()
    assert (answer.outcome, answer.status_code, answer.sealed) == (Outcome.UNKNOWN, "UNKNOWN", False)
    assert answer.message == "the participant answered with code 99, which gRPC does not know"


@pytest.mark.parametrize("turns", [*range(8), 20, 50])
async def test_a_call_is_cut_at_any_moment(desk: tuple[Desk, Connection], turns: int) -> None:
    """A task that is cancelled ends so, and one whose channel is closed goes on, however far the call has come."""
    _, connection = desk
    cancelled, closed = asyncio.create_task(ask(connection, b"wait")), asyncio.create_task(ask(connection, b"wait"))
    for _ in range(turns):
        await asyncio.sleep(0)
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    await connection.close()
    answer = await asyncio.wait_for(closed, TIMEOUT_S)
    assert answer.outcome is Outcome.UNKNOWN
    assert "closed" in answer.message


async def test_what_grpc_refuses_to_send(desk: tuple[Desk, Connection]) -> None:
    """Metadata that isn't ASCII fails that call only, with an answer that proves nothing and repeats no secret."""
    _, connection = desk
    refused = await ask(connection, secret=(("x-token", "gehe\u0131m"),))
    assert refused.outcome is Outcome.UNKNOWN
    assert "gehe" not in refused.message
    assert (await ask(connection)).outcome is Outcome.SUCCEEDED


async def ask(connection: Connection, request: bytes = b"abc", *, secret: tuple[tuple[str, str], ...] = ()) -> Answer:
    """What one attempt is answered."""
    attempt = compensation()._replace(request=request)
    caller = connection.caller(METHOD)
    return await send(caller, attempt, timeout_s=TIMEOUT_S, ledger_name="t", limit_bytes=1 << 20, secret=secret)
