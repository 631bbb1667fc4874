"""Builds claims and books of made-up sagas for the tests of the audit: consistent ones, to be spoilt one by one."""

from __future__ import annotations

from dataclasses import replace

from shop.demo.books import THINGS, Books, ServiceCall, Standing
from shop.demo.claims import COMMITTED, COMPENSATED, Claim, ClaimedCall

STEPS = (
    ("orders", "create_order"),
    ("inventory", "reserve"),
    ("payments", "authorize"),
    ("shipping", "ship"),
    ("payments", "capture"),
    ("notifications", "notify"),
)
UNDONE = STEPS[:3]


def instant(second: int) -> str:
    """The instant so many seconds after a fixed one."""
    return f"2026-01-01T00:{second // 60:02}:{second % 60:02}.000000+00:00"


def service_call(participant: str, step: str, *, saga_id: str, second: int, direction: str = "action") -> ServiceCall:
    """A call that came at the given second, made its effect and was answered half a minute before the next."""
    return ServiceCall(
        participant=participant,
        method=step,
        key=f"{saga_id}/{step}/{direction}",
        saga_id=saga_id,
        step=step,
        direction=direction,
        attempt=1,
        begin_time=instant(second),
        end_time=instant(second + 5),
        outcome="OK",
        effect_made=True,
    )


def claimed(call: ServiceCall, *, state: str = "SUCCEEDED") -> ClaimedCall:
    """The ledger's row of a call."""
    return ClaimedCall(step=call.step, direction=call.direction, key=call.key, state=state)


def committed(saga_id: str = "saga-1") -> tuple[Claim, Books]:
    """A saga that went through."""
    calls = tuple(
        service_call(participant, step, saga_id=saga_id, second=10 * number)
        for number, (participant, step) in enumerate(STEPS)
    )
    standing = tuple(
        Standing(thing=thing.name, saga_id=saga_id, thing_id=f"{thing.name}-of-{saga_id}") for thing in THINGS
    )
    claim = Claim(
        saga_id=saga_id,
        state=COMMITTED,
        calls=tuple(claimed(call) for call in calls),
        output={thing: f"{thing}-of-{saga_id}" for thing in ("order", "shipment", "charge")},
    )
    return claim, Books(calls=calls, standing=standing, stock_gaps={"teapot": 0})


def compensated(saga_id: str = "saga-2") -> tuple[Claim, Books]:
    """A saga whose fourth step was refused, and that was undone newest first."""
    actions = tuple(
        service_call(participant, step, saga_id=saga_id, second=10 * number)
        for number, (participant, step) in enumerate(UNDONE)
    )
    refused = replace(
        service_call("shipping", "ship", saga_id=saga_id, second=30), outcome="FAILED_PRECONDITION", effect_made=False
    )
    undone = tuple(
        service_call(participant, step, saga_id=saga_id, second=40 + 10 * number, direction="compensation")
        for number, (participant, step) in enumerate(reversed(UNDONE))
    )
    intents = (*map(claimed, actions), claimed(refused, state="REJECTED"), *map(claimed, undone))
    claim = Claim(saga_id=saga_id, state=COMPENSATED, calls=intents)
    return claim, Books(calls=(*actions, refused, *undone), standing=(), stock_gaps={"teapot": 0})


def repeated(call: ServiceCall, *, second: int, effect_made: bool) -> ServiceCall:
    """The same call once more, with the same key."""
    return replace(
        call,
        attempt=call.attempt + 1,
        begin_time=instant(second),
        end_time=instant(second + 1),
        outcome="OK",
        effect_made=effect_made,
    )
