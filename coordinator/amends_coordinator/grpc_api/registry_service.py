"""`amends.v1.RegistryService`: where participants announce themselves, and where static ones are made known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from google.protobuf.duration_pb2 import Duration

from amends.v1 import registry_service_pb2 as pb
from amends_coordinator.definitions.errors import DescriptorError, Fault
from amends_coordinator.engine.announcements import Announcement
from amends_coordinator.engine.registry_errors import (
    UnclearServicesError,
    UndescribedServicesError,
    UnusableConnectionError,
)
from amends_coordinator.grpc_api.mapping import participant_message
from amends_coordinator.grpc_api.static_requests import checked_static
from amends_coordinator.grpc_api.validation import NAME, SAGA_ID, Checks, InvalidRequestError, encoded_token

if TYPE_CHECKING:
    from amends_coordinator.engine.announcements import Announced
    from amends_coordinator.engine.registry import Registry
    from amends_coordinator.engine.static_participants import StaticParticipants
    from amends_coordinator.grpc_api.handlers import Context

_INSTANCE_EXAMPLE = "3f6c1c2e-7d0b-4f0e-9f4e-1f3a5b7c9d11"


class RegistryService:
    """Validates, calls the registry, maps."""

    def __init__(self, *, registry: Registry, statics: StaticParticipants, payload_limit_bytes: int) -> None:
        self._registry = registry
        self._statics = statics
        self._payload_limit_bytes = payload_limit_bytes

    async def RegisterParticipant(
        self, request: pb.RegisterParticipantRequest, _: Context
    ) -> pb.RegisterParticipantResponse:
        """Announce or renew one instance, or add or change a static participant."""
        try:
            if request.HasField("connection"):
                return pb.RegisterParticipantResponse(participant=participant_message(await self._add_static(request)))
            announced = await self._registry.announce(self._announcement(request))
        except UndescribedServicesError as error:
            raise InvalidRequestError(tuple(_undescribed(request, error))) from error
        except UnusableConnectionError as error:
            faults = tuple(Fault(f"connection.{path}", sentence) for path, sentence in error.faults.items())
            raise InvalidRequestError(faults) from error
        except (DescriptorError, UnclearServicesError) as error:
            raise InvalidRequestError((Fault("descriptors", str(error)),)) from error
        lease = Duration()
        lease.FromMicroseconds(self._registry.lease_us)
        return pb.RegisterParticipantResponse(participant=participant_message(announced), lease_timeout=lease)

    async def DeregisterParticipant(
        self, request: pb.DeregisterParticipantRequest, _: Context
    ) -> pb.DeregisterParticipantResponse:
        """Take one instance out, or a static participant."""
        checks = Checks()
        name = checks.text("name", request.name, NAME, example="payments")
        if not request.instance_id:
            checks.raise_if_any()
            await self._registry.remove_static(name)
            return pb.DeregisterParticipantResponse()
        instance_id = checks.text("instance_id", request.instance_id, SAGA_ID, example=_INSTANCE_EXAMPLE)
        checks.raise_if_any()
        await self._registry.withdraw(name, instance_id)
        return pb.DeregisterParticipantResponse()

    async def ListParticipants(self, request: pb.ListParticipantsRequest, _: Context) -> pb.ListParticipantsResponse:
        """List participants by name."""
        checks = Checks()
        size = checks.page_size("page_size", request.page_size)
        after = checks.name_page_token("page_token", request.page_token)
        checks.raise_if_any()
        rest = [each for each in self._registry.participants() if each.participant.name > after]
        page = rest[:size]
        token = encoded_token(page[-1].participant.name) if len(rest) > size else ""
        return pb.ListParticipantsResponse(
            participants=[participant_message(each) for each in page], next_page_token=token
        )

    async def _add_static(self, request: pb.RegisterParticipantRequest) -> Announced:
        checks = Checks()
        if request.HasField("instance"):
            checks.fault("instance", "goes not together with connection: a static participant doesn't announce itself")
        static = checked_static(checks, request, limit_bytes=self._payload_limit_bytes)
        checks.raise_if_any()
        return await self._statics.add(static)

    def _announcement(self, request: pb.RegisterParticipantRequest) -> Announcement:
        checks = Checks()
        descriptors = request.descriptors if request.HasField("descriptors") else None
        announcement = Announcement(
            participant=checks.text("name", request.name, NAME, example="payments"),
            services=checks.services("services", tuple(request.services)),
            instance_id=checks.text(
                "instance.instance_id", request.instance.instance_id, SAGA_ID, example=_INSTANCE_EXAMPLE
            ),
            address=checks.address("instance.address", request.instance.address),
            capacity=checks.capacity("instance.capacity", request.instance.capacity),
            descriptors=descriptors,
        )
        if descriptors is not None:
            checks.size("descriptors", descriptors.ByteSize(), limit_bytes=self._payload_limit_bytes)
        checks.raise_if_any()
        return announcement


def _undescribed(request: pb.RegisterParticipantRequest, error: UndescribedServicesError) -> list[Fault]:
    """Each service with its place in the request."""
    return [
        Fault(f"services[{index}]", f"{service} is not in the descriptors; send the file that defines it")
        for index, service in enumerate(request.services)
        if service in error.services
    ]
