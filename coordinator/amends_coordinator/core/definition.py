"""A registered definition as it is stored: the bytes of an `amends.v1.SagaDefinition` under its name and version."""

from __future__ import annotations

from dataclasses import dataclass

from amends_coordinator.core.ids import DefinitionVersion, Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredDefinition:
    """`content` is the serialised definition with every annotation and default resolved; it never changes."""

    name: str
    version: DefinitionVersion
    content: bytes
    created_time: Instant
