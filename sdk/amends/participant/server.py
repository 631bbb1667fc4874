"""Serves a participant's own gRPC services as steps of sagas.

    server = ParticipantServer("payments", coordinator="localhost:7070", port=7101)
    server.add(Payments())
    await server.serve()

The order in which it stops matters: health says NOT_SERVING, renewing ends, the port closes, the calls in hand finish
within the grace (then they are cancelled and may clean up), and only then is the instance taken out at the coordinator,
so that nothing cuts off a call whose answer is on its way.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import signal
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import grpc

from amends.participant.aio_server import ServedCalls, StepInterceptor
from amends.participant.announcing import WILDCARDS, Announcement, Announcing, check_who_and_where, first_of
from amends.participant.discretion import Discretion
from amends.participant.errors import CannotListenError, InvalidParticipantError, NotStartedError
from amends.participant.health import Health
from amends.participant.in_flight import CallsInFlight
from amends.participant.services import ServedService, check_streams, descriptors_of, read_servicer
from amends.participant.step_calls import StepCalls
from amends.participant.threads import HandlerThreads

log = logging.getLogger("amends.participant")

CLEAN_UP_S = 1.0

SERVER_OPTIONS = (("grpc.so_reuseport", 0),)  # a port that is taken must be an error, not a silent second listener


@dataclass(frozen=True, slots=True, kw_only=True)
class _Running:
    """What exists between start and stop."""

    server: grpc.aio.Server
    port: int
    health: Health
    announcing: Announcing
    in_flight: CallsInFlight
    threads: HandlerThreads
    stop_asked: asyncio.Event


class ParticipantServer:
    """A gRPC server whose services take part in sagas.

    Args:
        name: the participant's name, `[a-z][a-z0-9_-]{0,63}`. Processes with the same name are its instances.
        coordinator: gRPC target of the coordinator, such as "localhost:7070". It need not be there yet.
        port: where to listen; 0 takes a free one.
        host: the address to listen on.
        advertise: how the coordinator reaches this process, "host:port" or "host" (the port is added). Default: host
            and port. Needed where the host stands for all addresses.
        capacity: how many steps it carries out at once. A coordinator gives it no more; if several do together, it
            answers that it did not begin. 0: any number.
        stop_grace_s: how long calls in hand may take to finish when it stops.
        threads: how many plain handlers (`def`) run at once; further calls of them wait for a thread, in order. Unary
            methods may be plain. A thread can't be stopped: give whatever a plain handler waits for a timeout
            (`current_step().time_remaining()`), or its call stays in flight and its process doesn't end.
        interceptors: the team's own, the outermost first, as in any gRPC server. They stand before the steps: they read
            requests and responses as messages and see a refusal as an abort, and health checks pass through them too;
            the current step begins behind them. What one raises is sent as what a handler raises is.

    Raises:
        InvalidParticipantError: an argument can't be used; the text says which and why.
    """

    def __init__(  # noqa: PLR0913 - all but two are settings with a default
        self,
        name: str,
        *,
        coordinator: str,
        port: int = 0,
        host: str = "127.0.0.1",
        advertise: str | None = None,
        capacity: int = 0,
        stop_grace_s: float = 5.0,
        threads: int = 16,
        interceptors: Sequence[grpc.aio.ServerInterceptor] = (),
    ) -> None:
        check_who_and_where(name, coordinator)
        if not 0 <= port <= 65535 or capacity < 0 or stop_grace_s < 0 or threads < 1:
            raise InvalidParticipantError(
                f"port={port} must be 0 to 65535, capacity={capacity} and stop_grace_s={stop_grace_s} at least 0, "
                f"threads={threads} at least 1"
            )
        _check_interceptors(interceptors)
        if advertise is None and host in WILDCARDS:
            raise InvalidParticipantError(
                f'host={host!r} is no address that a coordinator can call: say which is, such as advertise="10.0.0.7"'
            )
        self._name, self._coordinator, self._capacity = name, coordinator, capacity
        self._host, self._wanted_port, self._advertise = host, port, advertise
        self._stop_grace_s, self._threads = stop_grace_s, threads
        self._interceptors = tuple(interceptors)
        self._services: dict[str, ServedService] = {}
        self._running: _Running | None = None
        self._changing = asyncio.Lock()

    @property
    def port(self) -> int:
        """The port it listens on."""
        return self._started().port

    @property
    def address(self) -> str:
        """How the coordinator is told to reach it."""
        return self._address(self._started().port)

    @property
    def instance_id(self) -> str:
        """Under which this process is announced; new at every start."""
        return self._started().announcing.instance_id

    def add(self, servicer: object) -> None:
        """Serve an instance of a class derived from one or more generated ...Servicer classes.

        Raises:
            InvalidParticipantError: it can't be served; the text says which line to change.
        """
        if self._running is not None:
            raise InvalidParticipantError("the server runs already: add() every servicer before start() or serve()")
        for service in read_servicer(servicer):
            check_streams(servicer, service)
            if service.name in self._services:
                raise InvalidParticipantError(f"{service.name} was added already: serve each service once")
            self._services[service.name] = service

    async def start(self) -> None:
        """Listen, and begin to announce; returns at once, also when the coordinator isn't there yet.

        Raises:
            CannotListenError: the port is taken, or the host is none of this machine's.
            InvalidParticipantError: nothing was added, or it runs already.
        """
        async with self._changing:
            if self._running is not None:
                raise InvalidParticipantError(f"participant {self._name} runs already: stop() it first")
            if not self._services:
                raise InvalidParticipantError(f"participant {self._name} serves nothing: add() a servicer first")
            self._running = await self._start()
        self._running.announcing.start()

    async def serve(self) -> None:
        """Start unless that was done, run until SIGTERM, SIGINT or `stop()`, and stop.

        Raises:
            DescriptorConflictError: another participant announces the same type with other content.
            CannotListenError, InvalidParticipantError: as `start`.
        """
        if self._running is None:
            await self.start()
        running = self._started()
        with _on_signals(running.stop_asked):
            try:
                await first_of(running.stop_asked, running.announcing.failure)
            finally:
                await self.stop()

    async def announced(self) -> None:
        """Wait until the coordinator has accepted the announcement once. Bound it with `asyncio.timeout`.

        Raises:
            DescriptorConflictError: another participant announces the same type with other content.
        """
        announcing = self._started().announcing
        await first_of(announcing.announced, announcing.failure)

    async def stop(self) -> None:
        """Finish the calls in hand within the grace, take the instance out, and close. Safe to repeat."""
        if self._running is not None:
            self._running.stop_asked.set()
        async with self._changing:
            running, self._running = self._running, None
            if running is not None:
                await self._stop(running)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()

    def _started(self) -> _Running:
        if self._running is None:
            raise NotStartedError(f"participant {self._name} isn't started: await start() first")
        return self._running

    async def _start(self) -> _Running:
        in_flight, health = CallsInFlight(), Health(self._services)
        calls = StepCalls(self._name, capacity=self._capacity, in_flight=in_flight)
        threads = HandlerThreads(self._threads)
        interceptors = (Discretion(self._name), *self._interceptors) if self._interceptors else ()
        server = grpc.aio.server(options=SERVER_OPTIONS, interceptors=interceptors)
        server.add_generic_rpc_handlers((ServedCalls(calls, services=self._services.values(), threads=threads),))
        health.serve_at(server)
        port = self._listen(server)
        await server.start()
        announcement = Announcement(
            participant=self._name,
            services=tuple(self._services),
            descriptors=descriptors_of(self._services.values()),
            address=self._address(port),
            capacity=self._capacity,
        )
        log.info("participant %s listens on %s:%d: %s", self._name, self._host, port, ", ".join(self._services))
        return _Running(
            server=server,
            port=port,
            health=health,
            announcing=Announcing(announcement, coordinator=self._coordinator),
            in_flight=in_flight,
            threads=threads,
            stop_asked=asyncio.Event(),
        )

    def _listen(self, server: grpc.aio.Server) -> int:
        address = f"{_bracketed(self._host)}:{self._wanted_port}"
        try:
            return server.add_insecure_port(address)
        except RuntimeError as problem:
            raise CannotListenError(
                f"participant {self._name} can't listen on {address}: another process listens there, or it is no "
                "address of this machine; choose another port, or port=0 for a free one"
            ) from problem

    def _address(self, port: int) -> str:
        if self._advertise is None:
            return f"{_bracketed(self._host)}:{port}"
        return self._advertise if re.search(r":\d+$", self._advertise) else f"{self._advertise}:{port}"

    async def _stop(self, running: _Running) -> None:
        running.health.stop_serving()
        await running.announcing.stop()
        await running.server.stop(self._stop_grace_s)
        if not await running.in_flight.wait_idle(CLEAN_UP_S):
            log.warning("participant %s stops with %d calls that did not end", self._name, running.in_flight.count)
        running.threads.close()
        await running.announcing.withdraw()
        log.info("participant %s stopped", self._name)


def _check_interceptors(interceptors: Sequence[grpc.aio.ServerInterceptor]) -> None:
    for each in interceptors:
        # A caller without a type checker may give one of the other kind, of which gRPC tells no name.
        if not isinstance(each, grpc.aio.ServerInterceptor):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidParticipantError(
                f"{type(each).__name__} is no grpc.aio.ServerInterceptor: derive it from that, with an async "
                "intercept_service"
            )
        if isinstance(each, StepInterceptor):
            raise InvalidParticipantError(
                "a ParticipantServer makes steps by itself: leave StepInterceptor to servers of your own"
            )


@contextlib.contextmanager
def _on_signals(stop_asked: asyncio.Event) -> Generator[None]:
    """Sets the event on SIGTERM and SIGINT; where signals can't be had, as in a thread, the block runs without."""
    loop = asyncio.get_running_loop()
    taken: list[signal.Signals] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
            loop.add_signal_handler(number, stop_asked.set)
            taken.append(number)
    try:
        yield
    finally:
        for number in taken:
            loop.remove_signal_handler(number)


def _bracketed(host: str) -> str:
    """An IPv6 address needs brackets before a port."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host
