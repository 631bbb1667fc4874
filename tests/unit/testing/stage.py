"""The saga and the participant that rehearsals play here: steps that remember what they did."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from amends import Rejected, Saga, StepContext, current_step
from amends.testing import NoFault
from scenario.v1.scenario_pb2 import (
    DoFindableRequest,
    DoRequest,
    DoResponse,
    FindRequest,
    FindResponse,
    ScenarioInput,
    ScenarioOutput,
    UndoRequest,
    UndoResponse,
)
from scenario.v1.scenario_pb2_grpc import StepServiceServicer
from tests.scenarios.sagas import Do, ScenarioSaga, Undo

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import Any

    import grpc.aio

    from amends.testing import Answer, CallSite, Rehearsal

    Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]


@dataclass
class Steps(StepServiceServicer):
    """Does and undoes whatever it is told to.

    Attributes:
        refuses: the steps whose action it refuses.
        done: the steps that it did, "-" before those that it undid.
        seen: every call, as its handler saw it.
    """

    refuses: set[str] = field(default_factory=set[str])
    done: list[str] = field(default_factory=list[str])
    seen: list[StepContext] = field(default_factory=list[StepContext])

    async def Do(self, request: DoRequest, context: Context) -> DoResponse:
        """An action."""
        self.seen.append(current_step())
        if request.name in self.refuses:
            raise Rejected("no", reason="REFUSED")
        self.done.append(request.name)
        return DoResponse(effect_id=f"e-{request.name}", name=request.name)

    async def Undo(self, request: UndoRequest, context: Context) -> UndoResponse:
        """A compensation."""
        self.seen.append(current_step())
        self.done.append(f"-{request.name}")
        return UndoResponse()

    async def Find(self, request: FindRequest, context: Context) -> FindResponse:
        """A lookup."""
        return FindResponse()

    async def DoFindable(self, request: DoFindableRequest, context: Context) -> FindResponse:
        """An action that can be looked up."""
        return FindResponse()


def side_by_side(*names: str) -> ScenarioSaga:
    """A saga of steps none of which waits for another."""
    saga: ScenarioSaga = Saga("side-by-side", input=ScenarioInput, output=ScenarioOutput)
    for name in names:
        step = saga.step(name, Do(name=name, amount=saga.input.amount), after=())
        step.compensated_by(Undo(effect_id=step.response.effect_id, name=name))
    saga.output(ScenarioOutput)(effect_id=saga.id)
    return saga


Play: TypeAlias = "Callable[[CallSite, Callable[[], Awaitable[Answer]]], Awaitable[Answer]]"


class At(NoFault):
    """Plays a fault at the first attempt of one call, "step/direction"; `rehearsal` is for the fault to use."""

    def __init__(self, place: str, play: Play) -> None:
        self.rehearsal: Rehearsal
        self._place, self._play = place, play

    async def call(self, site: CallSite, send: Callable[[], Awaitable[Answer]]) -> Answer:
        """See `Fault`."""
        if f"{site.step}/{site.direction}" == self._place and site.attempt == 1:
            return await self._play(site, send)
        return await send()
