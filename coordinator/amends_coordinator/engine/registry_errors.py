"""Everything that the registry of participants raises."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class RegistryError(Exception):
    """Root of what the registry raises; nothing was changed."""


class UnknownParticipantError(RegistryError):
    """The participant has never sent its descriptors. Announce it once with them."""

    def __init__(self, name: str) -> None:
        super().__init__(f"participant {name} is not known here; announce it with its descriptors")
        self.name = name


class UndescribedServicesError(RegistryError):
    """Services are announced that the descriptors don't describe. Send the files that define them."""

    def __init__(self, services: tuple[str, ...]) -> None:
        super().__init__(f"no descriptors for {', '.join(services)}; send the files that define them")
        self.services = services


class UnclearServicesError(RegistryError):
    """Which services of a static participant are meant can't be told by its descriptors. Send others, or name them."""

    def __init__(self, count: int) -> None:
        super().__init__(
            f"describe {count} services; name those that sagas call"
            if count
            else "describe no service, beside health and reflection; give the files that define the services it serves"
        )


class DescriptorConflictError(RegistryError):
    """Another participant announces a file, type or service of the same name with other content. Rename one of them."""

    def __init__(self, contradictions: list[str]) -> None:
        found = "; ".join(contradictions)
        super().__init__(f"{found}; announce the same file as that one, or rename the package of yours")
        self.contradictions = tuple(contradictions)


class NameTakenError(RegistryError):
    """A participant of this name is of the other kind: static, or one that announces itself. Choose another name, or
    take that one out.
    """

    def __init__(self, name: str, *, is_static: bool) -> None:
        super().__init__(
            f"participant {name} is static, so no process can announce itself under its name; choose another name, or "
            "take the static one out first (`amends participant remove`)"
            if is_static
            else f"participant {name} announces itself just now; choose another name, or stop its processes first"
        )
        self.name = name


class NotStaticError(RegistryError):
    """A participant that announces itself can't be taken out as a whole. Name the instance, or stop its processes."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"participant {name} announces itself, so it leaves instance by instance: stop its processes, or name the "
            "instance_id of one"
        )
        self.name = name


class UnusableConnectionError(RegistryError):
    """A static participant can't be reached as it is said: `faults` has a sentence by the path in the connection."""

    def __init__(self, faults: Mapping[str, str]) -> None:
        super().__init__("; ".join(faults.values()))
        self.faults = dict(faults)
