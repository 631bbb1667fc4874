"""What may be said about a step's calls beside their requests: budgets, guarantees, codes, what is done in doubt."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import TYPE_CHECKING

import grpc

from amends.errors import DefinitionError
from amends.v1 import annotations_pb2, saga_definition_pb2

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

ZERO = timedelta(0)


class Guarantee(Enum):
    """What a method promises about repeated calls with the same idempotency key."""

    NONE = annotations_pb2.GUARANTEE_NONE
    """Nothing: a repeated call may double the effect."""
    KEY = annotations_pb2.GUARANTEE_KEY
    """Once per key. A call that arrives after its compensation still stands."""
    BARRIER = annotations_pb2.GUARANTEE_BARRIER
    """Once per key, and a call that arrives after its compensation is refused."""


class OnUnknown(Enum):
    """What is decided about a step that may have happened, when neither repeating nor looking it up tells."""

    COMPENSATE = saga_definition_pb2.ON_UNKNOWN_COMPENSATE
    """It counts as if it may have happened, and is compensated. The default."""
    PARK = saga_definition_pb2.ON_UNKNOWN_PARK
    """A person decides; steps that don't wait for it go on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """How a call is repeated while it doesn't answer clearly. What is left out has the direction's default.

    Delays double from `initial_delay` to `maximum_delay`; half of each is fixed, half is random.
    """

    initial_delay: timedelta | None = None
    """Before the second attempt; 1 ms to `maximum_delay`. Default: 100 ms for an action before the point of no return,
    else 1 s."""
    maximum_delay: timedelta | None = None
    """The longest delay; at most 1 h. Default: 5 s for an action before the point of no return, else 60 s."""
    total_timeout: timedelta | None = None
    """After this the call isn't repeated any more; at most 30 days. Default: 30 s for an action before the point of no
    return, else 1 h."""
    maximum_refusal_count: int | None = None
    """After so many clear refusals the call isn't repeated any more; 1 to 10,000. Default: 10."""

    def __post_init__(self) -> None:
        check_duration("initial_delay", self.initial_delay)
        check_duration("maximum_delay", self.maximum_delay)
        check_duration("total_timeout", self.total_timeout)
        if (
            self.initial_delay is not None
            and self.maximum_delay is not None
            and self.initial_delay > self.maximum_delay
        ):
            raise DefinitionError(
                f"initial_delay {self.initial_delay} is longer than maximum_delay {self.maximum_delay}"
            )
        if self.maximum_refusal_count is not None and self.maximum_refusal_count < 1:
            raise DefinitionError(f"maximum_refusal_count is {self.maximum_refusal_count}: it counts from 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Codes:
    """What an action's status codes mean, where it isn't the usual. What is left out is as its method is annotated.

    A clear no, unless something else is said, are INVALID_ARGUMENT, NOT_FOUND, ALREADY_EXISTS, FAILED_PRECONDITION and
    OUT_OF_RANGE. Only codes that no gRPC library makes by itself can be named: these, ABORTED and DATA_LOSS.
    """

    added_rejected: Collection[grpc.StatusCode] = ()
    """Codes that are a clear no, too: nothing was done for this key, and nothing will be."""
    removed_rejected: Collection[grpc.StatusCode] = ()
    """Codes that prove nothing, although they are usually a clear no."""
    already_done: Collection[grpc.StatusCode] = ()
    """Codes that say that the key or its effect is there already: the lookup is asked, so the step needs one."""

    def __post_init__(self) -> None:
        for name in ("added_rejected", "removed_rejected", "already_done"):
            check_codes(f"Codes: {name}", getattr(self, name))
        for name, others in (("removed_rejected", self.removed_rejected), ("already_done", self.already_done)):
            both = sorted(code.name for code in set(self.added_rejected) & set(others))
            if both:
                raise DefinitionError(f"Codes: {', '.join(both)} can't be both added_rejected and {name}")


def check_codes(name: str, codes: Iterable[grpc.StatusCode]) -> None:
    """Refuses codes that gRPC makes by itself, so that they say nothing about a participant."""
    listed = dict(annotations_pb2.StatusCode.items())
    known = [each.name for each in grpc.StatusCode if f"STATUS_CODE_{each.name}" in listed]
    for code in codes:
        # A caller without a type checker may pass numbers or names.
        if not isinstance(code, grpc.StatusCode):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise DefinitionError(
                f"{name} has {code!r}: pass codes of grpc.StatusCode, for example grpc.StatusCode.ABORTED"
            )
        if code.name not in known:
            raise DefinitionError(
                f"{name} has {code.name}, which gRPC also makes by itself, so it says nothing about the participant; "
                f"these can be named: {', '.join(known)}"
            )


def code_numbers(codes: Iterable[grpc.StatusCode]) -> list[annotations_pb2.StatusCode.ValueType]:
    """The codes as definitions carry them: each once, in the order of their numbers."""
    return sorted({annotations_pb2.StatusCode.Value(f"STATUS_CODE_{code.name}") for code in codes})


def check_duration(name: str, duration: timedelta | None) -> None:
    """Refuses a duration that isn't one, or isn't longer than nothing."""
    if duration is None:
        return
    # A caller without a type checker may pass seconds.
    if not isinstance(duration, timedelta):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise DefinitionError(f"{name} is {duration!r}: pass a timedelta, for example timedelta(seconds=5)")
    if duration <= ZERO:
        raise DefinitionError(f"{name} is {duration}: it has to be longer than nothing")


def check_instant(name: str, instant: datetime | None) -> None:
    """Refuses a time that isn't one, or doesn't say in which time zone it is meant."""
    if instant is None:
        return
    # A caller without a type checker may pass seconds, which have no zone.
    if getattr(instant, "tzinfo", None) is None:
        raise DefinitionError(f"{name} is {instant!r}: pass a datetime with its time zone, such as datetime.now(UTC)")
