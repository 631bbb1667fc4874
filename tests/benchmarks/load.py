"""The two ways to run an order's three calls, as closed loops that keep a number of them in flight."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeAlias

import grpc

from amends import Committed, Saga, SagaClient, method
from scenario.v1.scenario_pb2 import DoRequest, DoResponse, ScenarioInput, ScenarioOutput, UndoRequest, UndoResponse
from scenario.v1.scenario_pb2_grpc import StepServiceServicer, StepServiceStub

Do = method(StepServiceServicer.Do, DoRequest, DoResponse)
Undo = method(StepServiceServicer.Undo, UndoRequest, UndoResponse)
OneOrder: TypeAlias = Callable[[], Awaitable[None]]


def order_saga(participants: Sequence[str]) -> Saga[ScenarioInput, ScenarioOutput]:
    """Three steps, each at a participant of its own."""
    saga = Saga("bench-order", input=ScenarioInput, output=ScenarioOutput, timeout=timedelta(minutes=5))
    last = None
    for name in participants:
        last = saga.step(name, Do(name=name, amount=saga.input.amount), participant=name)
        last.compensated_by(Undo(effect_id=last.response.effect_id, name=name))
    if last is None:
        raise AssertionError("a saga has steps")
    saga.output(ScenarioOutput)(effect_id=last.response.effect_id)
    return saga


def through_sagas(client: SagaClient, saga: Saga[ScenarioInput, ScenarioOutput]) -> OneOrder:
    """One order as a saga, through the SDK as a user would: run it and look at its end. Its id is the SDK's, too."""

    async def one() -> None:
        outcome = await client.run(saga, ScenarioInput(amount=1))
        assert isinstance(outcome, Committed), f"a saga of the benchmark did not commit: {outcome}"

    return one


async def called_directly(stack: AsyncExitStack, addresses: Sequence[str], names: Sequence[str]) -> OneOrder:
    """The same three calls made directly, one after the other: no saga, no ledger."""
    stubs = [
        StepServiceStub(await stack.enter_async_context(grpc.aio.insecure_channel(address))) for address in addresses
    ]

    async def one() -> None:
        for stub, name in zip(stubs, names, strict=True):
            await stub.Do(DoRequest(name=name, amount=1), timeout=5)

    return one


@dataclass(frozen=True, slots=True)
class Measured:
    """What a round gave: orders done, the seconds it took, and how long each order took."""

    count: int
    seconds: float
    latencies_s: list[float]

    @property
    def per_second(self) -> float:
        """Orders per second."""
        return self.count / self.seconds


async def closed_loop(one: OneOrder, *, in_flight: int, seconds: float) -> Measured:
    """Run orders, always `in_flight` of them at once, for about `seconds`; those begun are finished and counted."""
    latencies: list[float] = []
    begin = time.perf_counter()
    end = begin + seconds

    async def worker() -> None:
        while (started := time.perf_counter()) < end:
            await one()
            latencies.append(time.perf_counter() - started)

    await asyncio.gather(*(worker() for _ in range(in_flight)))
    return Measured(len(latencies), time.perf_counter() - begin, latencies)
