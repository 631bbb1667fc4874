"""A participant that does what a script tells it, once per key, and writes a journal.

The script is a JSON file that may change while the process runs: it maps "name/direction" to one behaviour for each
attempt, the last of which holds for all further ones. Without an entry everything goes well.

    ok             do it and answer
    reject         refuse for good
    unavailable    answer UNAVAILABLE before doing anything
    try-later      say that it did not begin
    raise          raise an unexpected exception before doing anything
    hold           do it, then never answer: the caller's deadline or death ends the call
    die            do it, then kill the own process before answering
    delay:MS       do it, and answer MS milliseconds later
    abort          do it, and ask for the saga to be rolled back
    nul            refuse with a message that holds NUL and escape characters
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias
from uuid import uuid4

import grpc

from amends import NotDone, Rejected, StepContext, TryLater, current_step
from scenario.v1.scenario_pb2 import (
    DoFindableRequest,
    DoRequest,
    DoResponse,
    FindRequest,
    FindResponse,
    UndoRequest,
    UndoResponse,
)
from scenario.v1.scenario_pb2_grpc import StepServiceServicer
from tests.scenarios.journal import Entry, Journal, now_s

Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]  # their messages are not read through it


class ScriptedSteps(StepServiceServicer):
    """The service of tests/protos/scenario/v1/scenario.proto."""

    def __init__(self, journal: Journal, script: Path) -> None:
        self._journal = journal
        self._script = script
        self._memory = {entry.key: entry.effect_id for entry in journal.read() if entry.event == "effect"}

    async def Do(self, request: DoRequest, context: Context) -> DoResponse:
        """Make an effect."""
        return DoResponse(effect_id=await self._call(request.name, context), name=request.name)

    async def Undo(self, request: UndoRequest, context: Context) -> UndoResponse:
        """Undo an effect."""
        await self._call(request.name, context, undone=request.effect_id)
        return UndoResponse()

    async def Find(self, request: FindRequest, context: Context) -> FindResponse:
        """Tell what became of the action's key."""
        effect_id = self._memory.get(current_step().action_key or "")
        if effect_id is None:
            raise Rejected("this key is not known", reason="UNKNOWN_KEY", code=grpc.StatusCode.NOT_FOUND)
        return FindResponse(effect_id=effect_id, name=request.name)

    async def DoFindable(self, request: DoFindableRequest, context: Context) -> FindResponse:
        """Make an effect that can be looked up."""
        return FindResponse(effect_id=await self._call(request.name, context), name=request.name)

    async def _call(self, name: str, context: Context, *, undone: str = "") -> str:
        """Journal the call's beginning and end around what the script says."""
        step = current_step()
        self._write("begin", name, step, deadline_left_s=step.time_remaining())
        outcome = "cancelled"
        try:
            effect_id = await self._play(name, step, context, undone)
            outcome = "ok"
        except (Exception, NotDone) as error:
            outcome = type(error).__name__
            raise
        finally:
            self._write("end", name, step, outcome=outcome)
        return effect_id

    async def _play(self, name: str, step: StepContext, context: Context, undone: str) -> str:
        behaviour = self._behaviour(name, step)
        match behaviour:
            case "reject":
                raise Rejected("the script says no", reason="SCRIPTED")
            case "nul":
                raise Rejected("a NUL \0 and an escape \x1b[31m", reason="SCRIPTED")
            case "unavailable":
                await context.abort(grpc.StatusCode.UNAVAILABLE, "the script is out of order")
            case "try-later":
                raise TryLater("not just now")
            case "raise":
                raise ValueError("secret internal detail")
            case _:
                pass
        effect_id = self._take_effect(name, step, undone)
        await self._answer_late(behaviour, step)
        return effect_id

    def _take_effect(self, name: str, step: StepContext, undone: str) -> str:
        """Once per key: a repeated key is answered from memory; an undo whose action never came undoes nothing."""
        known = self._memory.get(step.key)
        if known is not None:
            return known
        if step.action_key is not None and step.action_key not in self._memory:
            return undone
        effect_id = undone or f"{name}-{uuid4().hex[:8]}"
        self._write("effect", name, step, effect_id=effect_id)
        self._memory[step.key] = effect_id
        return effect_id

    async def _answer_late(self, behaviour: str, step: StepContext) -> None:
        word, _, milliseconds = behaviour.partition(":")
        match word:
            case "hold":
                await asyncio.Event().wait()
            case "die":
                os.kill(os.getpid(), signal.SIGKILL)
            case "delay":
                with suppress(TimeoutError):
                    await asyncio.wait_for(asyncio.Event().wait(), float(milliseconds) / 1000)
            case "abort":
                step.abort_saga("the script asks for it")
            case _:
                pass

    def _behaviour(self, name: str, step: StepContext) -> str:
        script: dict[str, list[str]] = json.loads(self._script.read_text()) if self._script.exists() else {}
        behaviours = script.get(f"{name}/{step.direction.value}", ["ok"])
        return behaviours[min(step.attempt, len(behaviours)) - 1]

    def _write(
        self,
        event: str,
        name: str,
        step: StepContext,
        *,
        deadline_left_s: float | None = None,
        effect_id: str = "",
        outcome: str = "",
    ) -> None:
        self._journal.write(
            Entry(
                event=event,
                time_s=now_s(),
                name=name,
                key=step.key,
                saga_id=step.saga_id,
                step=step.step,
                direction=step.direction.value,
                attempt=step.attempt,
                deadline_left_s=deadline_left_s,
                effect_id=effect_id,
                outcome=outcome,
            )
        )
