"""Calls of a step in any number and order, at two processes at once: what was answered is true of the world."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict

import grpc
import pytest
from sqlalchemy.orm import Session

from amends import Rejected, current_step
from tests.conformance.barrier.stage import Answer, Stage, Step, staged, write_effect
from timeline.v1 import timeline_pb2 as pb

OK, ABORTED = grpc.StatusCode.OK, grpc.StatusCode.ABORTED
SAGAS = 8
CALLS = 48


def refuse_some(session: Session) -> pb.DoResponse:
    """Every third saga's action is refused."""
    response = write_effect(session)
    if int(current_step().saga_id.removeprefix("s-")) % 3 == 0:
        raise Rejected("not this one")
    return response


@pytest.mark.parametrize("seed", [1, 2])
async def test_whatever_comes_in_any_order(stage: Stage, seed: int) -> None:
    """S2, S4, F03, F04: one effect at most, undone once at most; a seal means none, and an OK holds for ever."""
    chance = random.Random(seed)
    steps = [Step(saga_id=f"s-{number}") for number in range(SAGAS)]
    async with staged(stage.rig) as other:
        stage.handlers.do = other.handlers.do = refuse_some
        asked = [(chance.choice(steps), chance.choice(("do", "do", "undo", "find"))) for _ in range(CALLS)]
        calls = [called(chance.choice((stage, other)), step, name) for step, name in asked]
        answers: dict[tuple[str, str], list[Answer]] = defaultdict(list)
        for (step, name), answer in zip(asked, await asyncio.gather(*calls), strict=True):
            answers[step.saga_id, name].append(answer)
        for step in steps:
            for name in ("undo", "do", "find"):  # by now nothing is on its way
                answers[step.saga_id, name].append(await called(stage, step, name))
    for step in steps:
        judge(stage, step, {name: answers[step.saga_id, name] for name in ("do", "undo", "find")})


def judge(stage: Stage, step: Step, answers: dict[str, list[Answer]]) -> None:
    """Compare what was said of a saga with what is durable."""
    effects = stage.rig.effects()
    happened = effects.count(step.saga_id)
    found = {answer.effect_id for name in ("do", "find") for answer in answers[name] if answer.code is OK}
    sealed = [answer for name in ("do", "find") for answer in answers[name] if answer.sealed]
    assert happened == len(found), "every OK tells of the one effect"
    assert not (happened and sealed), "what is sealed did not happen"
    assert [effects.count(f"undone {effect_id}") for effect_id in found] == [1] * happened
    assert answers["undo"][-1].code is OK
    assert answers["do"][-1].code is (OK if happened else grpc.StatusCode.FAILED_PRECONDITION)
    assert answers["find"][-1].code is (OK if happened else grpc.StatusCode.NOT_FOUND)
    assert all(answer.code in {OK, ABORTED} or answer.sealed for each in answers.values() for answer in each)


async def called(stage: Stage, step: Step, name: str) -> Answer:
    """Make one call, with time enough."""
    match name:
        case "do":
            return await stage.do(step, timeout_s=30)
        case "undo":
            return await stage.undo(step, timeout_s=30)
        case _:
            return await stage.find(step, timeout_s=30)
