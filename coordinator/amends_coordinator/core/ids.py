"""Identifiers and instants: distinct types, so that one is never passed for another."""

from __future__ import annotations

from typing import NewType

SagaId = NewType("SagaId", str)
"""Chosen by the initiator, `[A-Za-z0-9][A-Za-z0-9._~-]{0,127}`, or a UUIDv7."""

StepName = NewType("StepName", str)
"""`[a-z][a-z0-9_]{0,63}`, unique in its saga; so keys joined from ids and names never collide."""

NodeId = NewType("NodeId", str)
"""One incarnation of a coordinator process."""

DefinitionVersion = NewType("DefinitionVersion", str)
"""16 hexadecimal digits computed from a definition's content."""

IdempotencyKey = NewType("IdempotencyKey", str)
"""The same for every attempt of one step and direction, across nodes and crashes (S2)."""

DeadLetterId = NewType("DeadLetterId", str)
"""`{saga_id}/{step}/{direction}/{n}`: deterministic, so that a write sent twice opens one dead letter."""

Instant = NewType("Instant", int)
"""A point in time: microseconds since 1970-01-01T00:00:00Z. Durations are plain `int` microseconds, named `…_us`."""
