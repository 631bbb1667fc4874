"""The port to what a service says of itself: the descriptors of a participant that doesn't announce itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    from amends_coordinator.ports.connections import StaticConnection


class NotDescribedError(Exception):
    """A target doesn't tell its descriptors. The message says why and what to do; asking again is safe."""


class Describing(Protocol):
    """Asks a target what it serves. Bounded in time, in files and in bytes."""

    def faults(self, connection: StaticConnection) -> Mapping[str, str]:
        """What keeps a connection from being used at all, such as a secret that isn't there: sentences by the path of
        the field in the connection ("tls.ca_file"). Blocks on the disk.
        """
        ...

    async def describe(self, connection: StaticConnection, services: Sequence[str]) -> FileDescriptorSet:
        """The files of these services, and all that they import; of all services but health and reflection if none is
        named.

        Raises:
            NotDescribedError: the target can't be reached, has no reflection, or tells too much or nothing of use.
        """
        ...
