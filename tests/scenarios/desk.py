"""The operator's desk in scenarios: finds dead letters and says what a person says about them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage

from amends.v1 import operator_service_pb2 as pb
from amends.v1 import saga_pb2
from amends.v1.operator_service_pb2_grpc import OperatorServiceStub
from amends.v1.saga_service_pb2 import AbortSagaRequest, GetSagaRequest
from tests.integration.api.refusals import refused
from tests.waiting import pause

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from tests.scenarios.inside import Inside

BOUND_S = 30.0


@dataclass(frozen=True, slots=True)
class Desk:
    """Ada, at the coordinator's API."""

    coordinator: Inside

    @property
    def stub(self) -> OperatorServiceStub:
        """The service itself."""
        return OperatorServiceStub(self.coordinator.channel)

    async def saga(self, saga_id: str = "s") -> saga_pb2.Saga:
        """A saga with its rows."""
        return (await self.coordinator.sagas.GetSaga(GetSagaRequest(saga_id=saga_id))).saga

    async def once(self, so: Callable[[saga_pb2.Saga], bool], saga_id: str = "s") -> saga_pb2.Saga:
        """A saga, once something holds for it."""
        end_s = time.monotonic() + BOUND_S
        while not so(found := await self.saga(saga_id)):
            assert time.monotonic() < end_s, f"still not so: {found}"
            await pause()
        return found

    async def stands(self, state: str, saga_id: str = "s") -> saga_pb2.Saga:
        """A saga, once it is in this state."""
        return await self.once(lambda saga: state_of(saga) == state, saga_id)

    async def open_letter(self, step: str, direction: str = "action", saga_id: str = "s") -> str:
        """The id of the dead letter of a call, once one is open."""
        number = saga_pb2.Direction.Value(f"DIRECTION_{direction.upper()}")

        def ids(saga: saga_pb2.Saga) -> list[str]:
            return [
                letter.dead_letter_id
                for letter in saga.dead_letters
                if (letter.step, letter.direction) == (step, number) and not letter.HasField("close_time")
            ]

        return ids(await self.once(lambda saga: bool(ids(saga)), saga_id))[0]

    async def retry(self, letter_id: str, *, forced: bool = False) -> saga_pb2.Saga:
        """Retry it, because the participant is back."""
        request = pb.RetryDeadLetterRequest(
            dead_letter_id=letter_id, reason="it is back", forced=forced, claimed_actor="ada"
        )
        return (await self.stub.RetryDeadLetter(request)).saga

    async def resolve(self, letter_id: str, found: str, response: Message | None = None) -> saga_pb2.Saga:
        """Say what was found."""
        request = resolution(letter_id, found, response)
        return (await self.stub.ResolveDeadLetter(request)).saga

    async def why_not_retry(self, letter_id: str) -> tuple[grpc.StatusCode, str]:
        """How a retry is refused."""
        request = pb.RetryDeadLetterRequest(dead_letter_id=letter_id, reason="it is back")
        refusal = await refused(self.stub.RetryDeadLetter(request))
        return refusal.code, refusal.reason

    async def why_not_resolve(self, letter_id: str, found: str) -> tuple[grpc.StatusCode, str]:
        """How a resolution is refused."""
        refusal = await refused(self.stub.ResolveDeadLetter(resolution(letter_id, found)))
        return refusal.code, refusal.reason

    async def terminate(self, saga_id: str = "s") -> saga_pb2.Saga:
        """Stop a saga where it is."""
        request = pb.TerminateSagaRequest(saga_id=saga_id, reason="it does harm", claimed_actor="ada")
        return (await self.stub.TerminateSaga(request)).saga

    async def abort(self, saga_id: str = "s", reason: str = "the customer left") -> saga_pb2.Saga:
        """Ask a saga to roll back."""
        return (await self.coordinator.sagas.AbortSaga(AbortSagaRequest(saga_id=saga_id, reason=reason))).saga

    async def audit(self, saga_id: str = "s") -> list[pb.AuditEntry]:
        """What was done to a saga, oldest first."""
        answer = await self.stub.ListAuditEntries(pb.ListAuditEntriesRequest(saga_id=saga_id))
        return [*reversed(answer.audit_entries)]


def resolution(letter_id: str, found: str, response: Message | None = None) -> pb.ResolveDeadLetterRequest:
    """What ada says about a dead letter."""
    request = pb.ResolveDeadLetterRequest(
        dead_letter_id=letter_id,
        resolution=saga_pb2.Resolution.Value(f"RESOLUTION_{found}"),
        reason="looked into their books",
        claimed_actor="ada",
    )
    if response is not None:
        packed = AnyMessage()
        packed.Pack(response)
        request.response.CopyFrom(packed)
    return request


def state_of(saga: saga_pb2.Saga) -> str:
    """A saga's state in one word."""
    return saga_pb2.Saga.State.Name(saga.state).removeprefix("STATE_")


def intent_of(saga: saga_pb2.Saga, step: str, direction: str = "action") -> saga_pb2.Intent:
    """One of a saga's rows."""
    number = saga_pb2.Direction.Value(f"DIRECTION_{direction.upper()}")
    return next(each for each in saga.intents if (each.step, each.direction) == (step, number))
