"""Tells the coordinator where this process is, for as long as it runs.

One instance is announced under a new id at every start. The announcement is a lease: repeated after a third of it, at
once when the connection to the coordinator was lost, and with growing pauses while the coordinator can't be reached.
Nothing that the coordinator does or suffers stops the participant from serving, with one exception: when the types it
announces contradict those of another participant, nothing could ever reach it, so that ends it (`failure`).

The log has one line for every change of what the coordinator answers, however long it lasts.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

import grpc
from google.protobuf import descriptor_pb2

from amends.coordinator_calls import HOST_AND_PORT, check_target
from amends.errors import InvalidAddressError
from amends.participant.errors import DescriptorConflictError, InvalidParticipantError
from amends.participant.wire import error_reason
from amends.v1 import registry_service_pb2 as registry
from amends.v1.registry_service_pb2_grpc import RegistryServiceStub

log = logging.getLogger("amends.participant")

WILDCARDS = frozenset({"", "0.0.0.0", "::", "[::]", "*"})  # noqa: S104 - they are refused, not listened on
NAME = re.compile(r"[a-z][a-z0-9_-]{0,63}")

CALL_TIMEOUT_S = 5.0
DEREGISTER_TIMEOUT_S = 1.0
FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 2.0
ADVICE = {
    grpc.StatusCode.UNAVAILABLE: "start a coordinator there (`amends dev`) or correct coordinator=; ",
    grpc.StatusCode.UNIMPLEMENTED: "what listens there is no amends coordinator: correct coordinator=; ",
}
DEFAULT_LEASE_S = 30.0
SHORTEST_RENEWAL_S = 0.05

CHANNEL_OPTIONS = (
    ("grpc.enable_retries", 0),  # the pauses below are the only repetition
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 5_000),  # so long may an attempt to connect take, whatever the name says
    ("grpc.max_reconnect_backoff_ms", 2_000),
    ("grpc.keepalive_time_ms", 20_000),  # and so a connection is given up that nobody acknowledges for ten seconds
    ("grpc.keepalive_timeout_ms", 10_000),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Announcement:
    """What is announced: a participant, and where one process of it takes how many calls at once."""

    participant: str
    services: Sequence[str]
    descriptors: descriptor_pb2.FileDescriptorSet
    address: str
    capacity: int


class Announcing:
    """Keeps one instance announced. Make and use it inside the running loop.

    Attributes:
        instance_id: of this process, new each time.
        announced: set once the coordinator has accepted the announcement.
        failure: done with the error that ends the participant; never done otherwise.
    """

    def __init__(self, announcement: Announcement, *, coordinator: str) -> None:
        self.instance_id = uuid.uuid4().hex
        self.announced = asyncio.Event()
        self.failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._announcement, self._coordinator = announcement, coordinator
        self._channel = grpc.aio.insecure_channel(coordinator, options=CHANNEL_OPTIONS)
        self._registry = RegistryServiceStub(self._channel)
        self._disconnected = asyncio.Event()
        self._last_answer: grpc.StatusCode | None = None
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin to announce; returns at once, whether or not the coordinator is there."""
        for work, name in ((self._keep_announced(), "announce"), (self._watch_connection(), "watch")):
            task = asyncio.create_task(work, name=f"amends-{self._announcement.participant}-{name}")
            task.add_done_callback(self._ended)
            self._tasks.append(task)

    async def stop(self) -> None:
        """Cease to renew. The announcement holds until `withdraw` or the end of its lease."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        if self.failure.done() and not self.failure.cancelled():
            self.failure.exception()  # read, so that the loop does not report what nobody waited for

    async def withdraw(self) -> None:
        """Take the instance out at the coordinator, within a second or not at all, and close the connection."""
        request = registry.DeregisterParticipantRequest(
            name=self._announcement.participant, instance_id=self.instance_id
        )
        try:
            # The timeout around it is for what a deadline does not bound, such as a call that waits for its channel.
            async with asyncio.timeout(DEREGISTER_TIMEOUT_S):
                await self._registry.DeregisterParticipant(request, timeout=DEREGISTER_TIMEOUT_S)
        except (grpc.aio.AioRpcError, TimeoutError) as problem:
            code = problem.code().name if isinstance(problem, grpc.aio.AioRpcError) else "no answer"
            log.info("%s could not be taken out at %s (%s); its lease ends it", self._name, self._coordinator, code)
        finally:
            await self._channel.close()

    @property
    def _name(self) -> str:
        return f"participant {self._announcement.participant} at {self._announcement.address}"

    async def _keep_announced(self) -> None:
        pause_s = FIRST_PAUSE_S
        while True:
            self._disconnected.clear()
            lease_s = await self._announce()
            if lease_s is None:
                # Half fixed, half random: participants that lost their coordinator together do not return together.
                await asyncio.sleep(pause_s / 2 + random.random() * pause_s / 2)
                pause_s = min(pause_s * 2, LONGEST_PAUSE_S)
                continue
            pause_s = FIRST_PAUSE_S
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(lease_s / 3, SHORTEST_RENEWAL_S)):
                    await self._disconnected.wait()

    async def _announce(self) -> float | None:
        """Announce once; the lease in seconds, or None if it was not accepted."""
        what = self._announcement
        request = registry.RegisterParticipantRequest(
            name=what.participant,
            services=what.services,
            instance=registry.ParticipantInstance(
                instance_id=self.instance_id, address=what.address, capacity=what.capacity
            ),
            descriptors=what.descriptors,
        )
        try:
            response = await self._registry.RegisterParticipant(request, timeout=CALL_TIMEOUT_S)
        except grpc.aio.AioRpcError as refusal:
            self._refused(refusal)
            return None
        self._accepted()
        return response.lease_timeout.ToTimedelta().total_seconds() or DEFAULT_LEASE_S

    def _accepted(self) -> None:
        if self._last_answer is not grpc.StatusCode.OK:
            # Whoever read that it was not must read that it is, also where only warnings are shown.
            level = logging.INFO if self._last_answer is None else logging.WARNING
            log.log(level, "%s is announced to %s", self._name, self._coordinator)
        self._last_answer = grpc.StatusCode.OK
        self.announced.set()

    def _refused(self, refusal: grpc.aio.AioRpcError) -> None:
        if error_reason(refusal) == "DESCRIPTOR_CONFLICT":
            raise DescriptorConflictError(f"{self._name} can't take part: {refusal.details()}")
        if self._last_answer is not refusal.code():
            log.warning(
                "%s is not announced to %s: %s %s; %strying until it is",
                self._name,
                self._coordinator,
                refusal.code().name,
                refusal.details(),
                ADVICE.get(refusal.code(), ""),
            )
        self._last_answer = refusal.code()

    async def _watch_connection(self) -> None:
        """Notices a lost connection, so that a coordinator that restarted hears of us at once."""
        state = self._channel.get_state(try_to_connect=True)
        while state is not grpc.ChannelConnectivity.SHUTDOWN:
            await self._channel.wait_for_state_change(state)
            before, state = state, self._channel.get_state(try_to_connect=True)
            if before is grpc.ChannelConnectivity.READY:
                self._disconnected.set()

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Neither task ends by itself, so whatever ended one ends the participant."""
        if task.cancelled() or self.failure.done():
            return
        fault = task.exception() or RuntimeError(f"task {task.get_name()} ended by itself")
        log.error("%s: %s", self._name, fault, exc_info=None if isinstance(fault, DescriptorConflictError) else fault)
        self.failure.set_exception(fault)


async def first_of(event: asyncio.Event, failure: asyncio.Future[None]) -> None:
    """Waits for the event or the failure, and raises the failure."""

    async def happened() -> None:
        await event.wait()

    waiting = asyncio.create_task(happened(), name="amends-participant-wait")
    try:
        await asyncio.wait([waiting, failure], return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
    if failure.done():
        failure.result()


def check_who_and_where(name: str, coordinator: str) -> None:
    """Refuses a participant's name and a coordinator's target that can't be used.

    Raises:
        InvalidParticipantError: the text says which and why.
    """
    if not NAME.fullmatch(name):
        raise InvalidParticipantError(f"{name!r} is no name of a participant: it must match {NAME.pattern}")
    try:
        check_target(coordinator)
    except InvalidAddressError as problem:
        raise InvalidParticipantError(f"coordinator: {problem}") from problem


def check_address(address: str) -> None:
    """Refuses what no coordinator can call.

    Raises:
        InvalidParticipantError: it is not "host:port", or stands for all addresses of a machine.
    """
    found = HOST_AND_PORT.fullmatch(address)
    if found is None or not 0 < int(found["port"]) <= 65535 or address.rpartition(":")[0] in WILDCARDS:
        raise InvalidParticipantError(
            f'address={address!r} is no address that a coordinator can call: write one such as "10.0.0.7:7101"'
        )
