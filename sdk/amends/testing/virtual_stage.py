"""Plays a case on virtual time: a rehearsal as the stage of a play."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amends.testing.journal import CoordinatorFailed
from amends.testing.play import Play
from amends.testing.rehearsal import Rehearsal
from amends.testing.standing import StandsStillError
from amends.testing.stuck import StuckError
from amends.testing.virtual_time import run

if TYPE_CHECKING:
    from collections.abc import Sequence

    import grpc.aio

    from amends.client import SagaClient
    from amends.testing.cases import FaultCase
    from amends.testing.matrix import AnyMatrix
    from amends.testing.report import Result
    from amends.v1 import saga_pb2

CALM = {"sweep_interval_s": 5.0, "heartbeat_interval_s": 5.0}
"""The coordinator looks around less often than usual: what waits for a person does so after more than an hour."""


class VirtualStage:
    """See `play.Stage`."""

    def __init__(self, rehearsal: Rehearsal) -> None:
        self._rehearsal = rehearsal

    @property
    def client(self) -> SagaClient:
        """See `play.Stage`."""
        return self._rehearsal.client

    @property
    def channel(self) -> grpc.aio.Channel:
        """See `play.Stage`."""
        return self._rehearsal.channel

    async def standing(self, saga_id: str) -> saga_pb2.Saga:
        """See `play.Stage`."""
        try:
            return await self._rehearsal.settled(saga_id)
        except StandsStillError as waits:
            return waits.saga

    def kill(self) -> None:
        """See `play.Stage`."""
        self._rehearsal.kill()

    async def restart(self, participant: str | None = None) -> None:
        """See `play.Stage`."""
        await self._rehearsal.restart(*(self._rehearsal.participants if participant is None else (participant,)))

    def timeline(self) -> str:
        """See `play.Stage`."""
        return self._rehearsal.timeline()

    def coordinator_faults(self) -> Sequence[str]:
        """See `play.Stage`."""
        return [entry.what.error for entry in self._rehearsal.journal if isinstance(entry.what, CoordinatorFailed)]


def play(matrix: AnyMatrix, case: FaultCase, *, seed: int) -> Result:
    """Play a case on an event loop of its own. The same seed gives the same play."""
    played = Play(matrix, case, seed=seed)

    async def main() -> None:
        async with (
            matrix.world() as world,
            Rehearsal(
                world.participants(), restarted=world.participants, fault=played.script, settings=CALM
            ) as rehearsal,
        ):
            await played.play(VirtualStage(rehearsal), world)

    try:
        run(main, seed=seed)
    except StuckError as stuck:
        played.found(f"L1: {stuck}")
    return played.result()
