"""Participants with the SDK's barrier on a real database, behind a network that holds calls back, and a coordinator."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import delete
from sqlalchemy.orm import sessionmaker

from amends import ParticipantServer, current_step
from amends.v1 import registry_service_pb2, saga_pb2
from tests.conformance.barrier.stage import EFFECTS, NO_COORDINATOR, AsyncBarred, Handlers, PlainBarred
from tests.scenarios.inside import inside
from tests.scenarios.journal import Journal
from tests.timelines.network import between
from tests.timelines.participant import BARRIER, KEY
from tests.timelines.stage import PARTICIPANT_LEASE_S, at_rest
from tests.unit.grpc_api.samples import files_of
from tests.waiting import pause
from timeline.v1 import timeline_pb2 as pb
from timeline.v1.timeline_pb2_grpc import KeyServiceServicer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from google.protobuf.message import Message
    from sqlalchemy.orm import Session

    from tests.conformance.barrier.stage import Body, Rig
    from tests.scenarios.inside import Inside
    from tests.timelines.network import Network
    from tests.timelines.sagas import Timeline


BARRED = ("sqlite-async", "postgresql-plain")
"""Each database and each kind of session once; the barrier's own suite has them all."""


class AsyncElsewhere(AsyncBarred, KeyServiceServicer):
    """The same handlers once more, for the service of the participant that was not called with the action."""


class PlainElsewhere(PlainBarred, KeyServiceServicer):
    """The same for plain sessions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What runs, and what was done.

    Attributes:
        network: stands before both participants, "barrier" and "elsewhere".
        rig: their database.
        ran: the handlers' bodies that ran, as "step/direction", in their order.
    """

    coordinator: Inside
    network: Network
    rig: Rig
    ran: list[str]

    async def rests(self, saga: Timeline) -> saga_pb2.Saga:
        """A saga of this definition, once it has ended or waits for a person."""
        await self.coordinator.client.start(saga, pb.TimelineInput(), saga_id="s")
        while not at_rest(found := await self.coordinator.client.get("s")):
            await pause()
        return found


@asynccontextmanager
async def barred(rig: Rig, data: Path) -> AsyncGenerator[Scene]:
    """A scene that is up until the block ends."""
    ran: list[str] = []
    handlers = Handlers(do=_noted(ran, _make), undo=_noted(ran, _unmake))
    server = ParticipantServer("both", coordinator=NO_COORDINATOR, stop_grace_s=0)
    if isinstance(rig.sessions, sessionmaker):
        server.add(PlainElsewhere(handlers, rig.sessions))
    else:
        server.add(AsyncElsewhere(handlers, rig.sessions))
    async with (
        server,
        between(Journal(data / "journal.jsonl"), server.address) as network,
        inside(data, participant_lease_s=PARTICIPANT_LEASE_S) as coordinator,
    ):
        for name, service in (("barrier", BARRIER), ("elsewhere", KEY)):
            await coordinator.registry.RegisterParticipant(
                registry_service_pb2.RegisterParticipantRequest(
                    name=name,
                    services=[service],
                    instance=registry_service_pb2.ParticipantInstance(instance_id="i-1", address=network.address),
                    descriptors=files_of(pb.DESCRIPTOR),
                )
            )
        yield Scene(coordinator=coordinator, network=network, rig=rig, ran=ran)


def _noted(ran: list[str], body: Body) -> Body:
    def run(session: Session) -> Message:
        step = current_step()
        ran.append(f"{step.step}/{step.direction}")
        return body(session)

    return run


def _make(session: Session) -> pb.DoResponse:
    """One row, which stands for the step."""
    session.execute(EFFECTS.insert().values(name=current_step().step))
    return pb.DoResponse(effect_id=current_step().step)


def _unmake(session: Session) -> pb.UndoResponse:
    """The row is gone."""
    session.execute(delete(EFFECTS).where(EFFECTS.c.name == current_step().step))
    return pb.UndoResponse()
