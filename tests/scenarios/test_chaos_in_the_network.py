"""Many sagas of every shape, a network that holds back, doubles and loses, aborts at any time, late copies of
everything and a person after the end: what is claimed is what happened.
"""

from __future__ import annotations

import asyncio
import os
import random
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING

import grpc
import pytest

from amends import CompensationFailurePolicy, PastPointOfNoReturnError, Retry, Saga
from amends.v1 import saga_pb2
from tests.integration.api.refusals import refusal_of
from tests.timelines.network import Fate
from tests.timelines.participant import FAIL, LOSE, OK, REFUSE, Turn
from tests.timelines.sagas import GUARDED, KEYED, Promise, Timeline
from tests.timelines.stage import ENDED, Stage, at_rest, staged
from tests.waiting import pause
from timeline.v1.timeline_pb2 import DoResponse, TimelineInput

if TYPE_CHECKING:
    from pathlib import Path

    from amends import SagaHandle, Step
    from timeline.v1.timeline_pb2 import DoRequest

pytestmark = pytest.mark.scenario

MANY = 40
ATTEMPT = timedelta(milliseconds=300)
SLOW_S = 0.4
"""The longest time that a call takes: some are still at work when their callers have given up."""

SHORT = Retry(
    initial_delay=timedelta(milliseconds=5),
    maximum_delay=timedelta(milliseconds=40),
    total_timeout=timedelta(milliseconds=400),
    maximum_refusal_count=2,
)
POLICIES = (CompensationFailurePolicy.CONTINUE, CompensationFailurePolicy.HALT)
SHAPES = ("c c f", "c cf c", "cf P t", "c f p tt", "q c f t", "ff cc")
"""Steps side by side stand together. c: compensatable; f: the same with a lookup; q: read-only; p, P: pivot without and
with a lookup; t: retriable.
"""


def definition(shape: str, promise: Promise, policy: CompensationFailurePolicy) -> Timeline:
    """A saga of this shape."""
    name = f"{shape.replace(' ', '-').replace('P', 'l')}-{'k' if promise is KEYED else 'b'}-{policy.name.lower()}"
    saga: Timeline = Saga(name, input=TimelineInput, timeout=timedelta(minutes=5), compensation_failure_policy=policy)
    before: list[Step[DoRequest, DoResponse]] = []
    for place, group in enumerate(shape.split()):
        before = [_add(saga, kind, f"{kind.lower()}{place}{n}", promise, before) for n, kind in enumerate(group)]
    return saga


def _add(
    saga: Timeline, kind: str, name: str, promise: Promise, after: list[Step[DoRequest, DoResponse]]
) -> Step[DoRequest, DoResponse]:
    do = promise.do(name=name)
    match kind:
        case "q":
            return saga.read_only(name, do, after=after, timeout=ATTEMPT, retry=SHORT)
        case "t":
            return saga.retriable(name, do, after=after, timeout=ATTEMPT, retry=SHORT)
        case "p" | "P":
            step = saga.pivot(name, do, after=after, timeout=ATTEMPT, retry=SHORT)
        case _:
            step = saga.step(name, do, after=after, timeout=ATTEMPT, retry=SHORT)
            step.compensated_by(promise.undo(name=name), by_key=True, timeout=ATTEMPT, retry=SHORT)
    if kind in "fP":
        step.looked_up_by(promise.find(name=name), timeout=ATTEMPT, retry=SHORT)
    return step


@dataclass(frozen=True, slots=True)
class Chance:
    """Everything that is left to chance, from one seed."""

    dice: random.Random

    def fate(self, method: str, side: str) -> Fate:
        """What becomes of a call. A participant that only knows keys doesn't remember what it refused, so that a copy
        of a refused call would stand: it is not told twice.
        """
        doubled = Fate.PASS if "KeyService" in method and side.endswith("/action") else Fate.DOUBLED
        fates = (Fate.PASS, doubled, Fate.LATE, Fate.DROPPED, Fate.LOST, Fate.HELD, Fate.UNHEARD)
        return self.dice.choices(fates, (12, 2, 1, 1, 1, 1, 1))[0]

    def turn(self, side: str) -> Turn:
        """What a participant does."""
        refused = 1 if side.endswith("/action") else 4
        turn = self.dice.choices((OK, REFUSE, FAIL, LOSE), (12, refused, 1, 1))[0]
        if self.dice.random() < 0.2:
            works = asyncio.Event()
            asyncio.get_running_loop().call_later(self.dice.random() * SLOW_S, works.set)
            turn = replace(turn, before=works)
        return turn


@dataclass(slots=True)
class Life:
    """One saga, and whether an abort was accepted (None: none was asked for)."""

    saga_id: str
    saga: Timeline
    aborted: bool | None = None

    async def live(self, stage: Stage, dice: random.Random) -> saga_pb2.Saga.State.ValueType:
        """Start it, perhaps abort it somewhere, and wait until it rests; the state in which it does."""
        handle = await stage.start(self.saga, self.saga_id)
        if dice.random() < 0.3:
            for _ in range(dice.randrange(60)):
                await pause()
            self.aborted = await _abort(handle)
        return (await stage.once(at_rest, self.saga_id)).state

    def check(self, stage: Stage, saga: saga_pb2.Saga) -> None:
        """What it claims is what happened, and what was said about its abort is true."""
        stage.judge(saga)
        if self.aborted:
            assert saga.state != saga_pb2.Saga.STATE_COMMITTED, f"S10: {self.saga_id} was aborted"
        if "-b-" in self.saga.name:
            assert not saga.unproven, f"{self.saga_id} has only steps under a barrier"


async def _abort(handle: SagaHandle[None]) -> bool:
    try:
        await handle.abort("chance")
    except PastPointOfNoReturnError:
        return False
    return True


async def test_whatever_happens(ledger_url: str, tmp_path: Path) -> None:
    """S1 to S6, S8, S10, L1: at rest, after every late copy has arrived, and after a truthful person has settled what
    is left, the journal agrees. AMENDS_TEST_SEED replays a failure.
    """
    seed = int(os.environ.get("AMENDS_TEST_SEED", "0")) or random.randrange(1, 1 << 30)
    print(f"replay with AMENDS_TEST_SEED={seed}")  # noqa: T201  # a failing random test says how to replay it
    dice = random.Random(seed)
    sagas = [
        definition(shape, promise, policy) for shape in SHAPES for promise in (GUARDED, KEYED) for policy in POLICIES
    ]
    lives = [Life(f"s-{number}", dice.choice(sagas)) for number in range(MANY)]
    async with staged(ledger_url, tmp_path, abort_grace_s=0.2) as stage:
        chance = Chance(dice)
        stage.network.chance, stage.participant.chance = chance.fate, chance.turn
        states = await asyncio.gather(*(life.live(stage, dice) for life in lives))
        # Which sagas wait for a person is up to chance and timing.
        assert set(states) >= {saga_pb2.Saga.STATE_COMMITTED, saga_pb2.Saga.STATE_COMPENSATED}, f"too tame: {states}"
        stage.network.chance = stage.participant.chance = None
        for side in list(stage.network.held):
            await stage.network.deliver(side)
        for life in lives:
            await settle(stage, life)
            life.check(stage, await stage.once(lambda saga: saga.state in ENDED, life.saga_id))


def is_still(saga: saga_pb2.Saga) -> bool:
    """Whether it is at rest, and no call goes on beside what waits for a person: the journal would be ahead of it."""
    return at_rest(saga) and all(intent.state != saga_pb2.Intent.STATE_PENDING for intent in saga.intents)


async def settle(stage: Stage, life: Life) -> None:
    """Retry every dead letter, newest first; where there is nothing to repeat say what the books say, until it ends."""
    while True:
        saga = await stage.once(is_still, life.saga_id)
        life.check(stage, saga)
        open_ones = [letter for letter in saga.dead_letters if not letter.HasField("close_time")]
        if not open_ones:
            return
        for letter in reversed(open_ones):
            await _settle(stage, life.saga_id, letter)
        await pause()


async def _settle(stage: Stage, saga_id: str, letter: saga_pb2.DeadLetter) -> None:
    try:
        await stage.desk.retry(letter.dead_letter_id)
    except grpc.aio.AioRpcError as error:
        if refusal_of(error).reason != "NOTHING_TO_REPEAT":
            return  # not its turn yet, or closed meanwhile
        effects = stage.journal.effects()
        happened = any((entry.saga_id, entry.step) == (saga_id, letter.step) for entry in effects)
        response = DoResponse(effect_id="by hand") if happened else None
        await stage.desk.resolve(letter.dead_letter_id, "HAPPENED" if happened else "DID_NOT_HAPPEN", response)
