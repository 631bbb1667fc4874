"""Announces a server that a team runs itself, as `ParticipantServer` announces its own.

announcer = Announcer("payments", coordinator="coordinator:7070", address="10.0.0.7:7101", servicers=[Payments()])
await announcer.start()          # once the server listens
...
await server.stop(grace=5)       # first the calls in hand
await announcer.stop()           # then the instance is taken out

"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterable
from types import TracebackType
from typing import Any, Self, TypeVar

from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.descriptor import ServiceDescriptor

from amends.participant.announcing import Announcement, Announcing, check_address, check_who_and_where, first_of
from amends.participant.errors import InvalidParticipantError, NotStartedError
from amends.participant.services import files_of, read_servicer

T = TypeVar("T")


class Announcer:
    """Keeps one process of a participant announced, from `start` to `stop`. Use it on one event loop.

    Args:
        name: the participant's name, `[a-z][a-z0-9_-]{0,63}`. Processes with the same name are its instances.
        coordinator: gRPC target of the coordinator, such as "localhost:7070". It need not be there yet.
        address: how the coordinator reaches this process, "host:port".
        servicers: instances of classes derived from generated ...Servicer classes.
        services: full names of further services ("package.Service"), for servers that have no such servicers.
        descriptors: the files that describe `services`, each after what it depends on. Default: those that the imported
            _pb2 modules have described.
        capacity: how many calls it takes at once; a coordinator gives it no more. 0: any number.

    Raises:
        InvalidParticipantError: an argument can't be used; the text says which and why.
    """

    def __init__(
        self,
        name: str,
        *,
        coordinator: str,
        address: str,
        servicers: Iterable[object] = (),
        services: Iterable[str] = (),
        descriptors: descriptor_pb2.FileDescriptorSet | None = None,
        capacity: int = 0,
    ) -> None:
        check_who_and_where(name, coordinator)
        check_address(address)
        if capacity < 0:
            raise InvalidParticipantError(f"capacity={capacity} must be at least 0")
        known = {service.name: service.descriptor for servicer in servicers for service in read_servicer(servicer)}
        named = tuple(services)
        if descriptors is None:
            known |= {service: _described(service) for service in named}
        if not known and not named:
            raise InvalidParticipantError(f"participant {name} serves nothing: name its servicers= or its services=")
        files = files_of(known.values())
        files.MergeFrom(descriptors or descriptor_pb2.FileDescriptorSet())
        self._announcement = Announcement(
            participant=name,
            services=tuple(dict.fromkeys((*known, *named))),
            descriptors=files,
            address=address,
            capacity=capacity,
        )
        self._coordinator = coordinator
        self._running: Announcing | None = None

    @property
    def instance_id(self) -> str:
        """Under which this process is announced; new at every start."""
        return self._started().instance_id

    async def start(self) -> None:
        """Begin to announce; returns at once, also when the coordinator isn't there yet.

        Raises:
            InvalidParticipantError: it runs already.
        """
        if self._running is not None:
            raise InvalidParticipantError(f"participant {self._announcement.participant} is announced already")
        self._running = Announcing(self._announcement, coordinator=self._coordinator)
        self._running.start()

    async def announced(self) -> None:
        """Wait until the coordinator has accepted the announcement once. Bound it with `asyncio.timeout`.

        Raises:
            DescriptorConflictError: another participant announces the same type with other content.
        """
        running = self._started()
        await first_of(running.announced, running.failure)

    async def stop(self) -> None:
        """Take the instance out at the coordinator, within a second or not at all. Safe to repeat."""
        running, self._running = self._running, None
        if running is not None:
            await running.stop()
            await running.withdraw()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()

    def _started(self) -> Announcing:
        if self._running is None:
            name = self._announcement.participant
            raise NotStartedError(f"participant {name} isn't announced: start() its announcer first")
        return self._running


class SyncAnnouncer:
    """Runs an announcer in a thread of its own, for programs without an event loop.

        with SyncAnnouncer(Announcer("payments", ...)):
            server.wait_for_termination()

    Args:
        announcer: which nothing else starts.
    """

    def __init__(self, announcer: Announcer) -> None:
        self._announcer = announcer
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def instance_id(self) -> str:
        """Under which this process is announced; new at every start."""
        return self._announcer.instance_id

    def start(self) -> None:
        """See `Announcer.start`."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            # A daemon: a program that ends without stop() is not held up, and its lease ends by itself.
            self._thread = threading.Thread(target=self._loop.run_forever, name="amends-announcer", daemon=True)
            self._thread.start()
        self._run(self._announcer.start())

    def announced(self, timeout_s: float) -> None:
        """Wait until the coordinator has accepted the announcement once.

        Raises:
            TimeoutError: it has not within this time; it is tried on.
            DescriptorConflictError: another participant announces the same type with other content.
        """
        self._run(asyncio.wait_for(self._announcer.announced(), timeout_s))

    def stop(self) -> None:
        """See `Announcer.stop`."""
        if self._loop is None or self._thread is None:
            return
        self._run(self._announcer.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._loop = self._thread = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        if self._loop is None:
            work.close()
            raise NotStartedError("the announcer isn't started: start() it first")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


def _described(service: str) -> ServiceDescriptor:
    try:
        return descriptor_pool.Default().FindServiceByName(service)
    except KeyError:
        raise InvalidParticipantError(
            f"no imported _pb2 module describes the service {service}: import the one that does, or give descriptors="
        ) from None
