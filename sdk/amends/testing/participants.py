"""The participants of a rehearsal: the author's own servicers, behind the SDK's own wrapper, without a server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amends.participant.aio_server import ServedCalls
from amends.participant.discretion import Discretion
from amends.participant.in_flight import CallsInFlight
from amends.participant.services import descriptors_of, read_servicer
from amends.participant.step_calls import StepCalls
from amends.participant.threads import HandlerThreads
from amends.testing.in_process import InProcessServer
from amends_coordinator.bootstrap import RehearsedParticipant

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    import grpc

    from amends.participant.services import ServedService


THREADS = 8
"""How many plain handlers of one participant run at once."""


class Participant:
    """One of them.

    Args:
        name: its name.
        servicers: instances of the author's classes.
        begin: is waited for before a handler runs.
        interceptors: the author's own, as of a `ParticipantServer`.

    Raises:
        InvalidParticipantError: a servicer can't be served.
    """

    def __init__(
        self,
        name: str,
        servicers: Sequence[object],
        *,
        begin: Callable[[], Awaitable[None]],
        interceptors: Sequence[grpc.aio.ServerInterceptor] = (),
    ) -> None:
        self.name = name
        self._services = _services_of(servicers)
        self._threads = HandlerThreads(THREADS)
        self._process = self._begin_process()
        stand_before = (Discretion(name), *interceptors) if interceptors else ()
        self._server = InProcessServer(name, self._serve, begin=begin, interceptors=stand_before)

    def described(self) -> RehearsedParticipant:
        """As a coordinator knows it."""
        return RehearsedParticipant(
            name=self.name,
            services=tuple(service.name for service in self._services),
            descriptors=descriptors_of(self._services),
            channel=self._server.channel(),
        )

    async def die(self) -> None:
        """All that its process was doing ends, and what it held is free, as the operating system sees to it."""
        await self._server.end_all()

    def begin_anew(self, servicers: Sequence[object] | None = None) -> None:
        """Another process is there, which takes the calls from now on.

        Args:
            servicers: what it made when it started; what the old ones had in memory is gone. None: the same ones.
        """
        if servicers is not None:
            self._services = _services_of(servicers)
        self._process = self._begin_process()

    def close(self) -> None:
        """End it for good."""
        self._server.cancel_all()
        self._threads.close()

    def _begin_process(self) -> ServedCalls:
        calls = StepCalls(self.name, capacity=0, in_flight=CallsInFlight())
        return ServedCalls(calls, services=self._services, threads=self._threads)

    def _serve(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any] | None:
        return self._process.service(details)


def _services_of(servicers: Sequence[object]) -> list[ServedService]:
    return [service for servicer in servicers for service in read_servicer(servicer)]
