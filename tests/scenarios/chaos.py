"""A participant that is truthful and unreliable: it tells no lies, but its answers get lost, come as garbage or late.

It keeps a memory by key, as a participant must: an effect happens once per key, a refused key may be run later unless
it was sealed, and an undo finds its action by the action's key.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TypeVar

import grpc

from tests.scenarios.raw import GOOD, RawSteps, Reply, Seen

T = TypeVar("T")
Code = grpc.StatusCode
DONE, LATER = Reply(), Reply(code=Code.UNAVAILABLE, trailers=(("amends-executed", "no"),))
NO, NOT_FOUND = Reply(code=Code.FAILED_PRECONDITION, text="no"), Reply(code=Code.NOT_FOUND, text="not here")
SEAL = (("amends-sealed", "1"),)
SEALED_NO = Reply(code=Code.FAILED_PRECONDITION, text="no", trailers=SEAL)
SEALED_NOT_FOUND = Reply(code=Code.NOT_FOUND, text="never", trailers=SEAL)
DONE_BEFORE = Reply(code=Code.ALREADY_EXISTS, text="there is one already")
NOT_LET_IN = Reply(code=Code.PERMISSION_DENIED)
LOST = (
    Reply(code=Code.UNAVAILABLE),
    Reply(code=Code.INTERNAL, text="\0"),
    Reply(code=Code.ABORTED),
    Reply(code=Code.DEADLINE_EXCEEDED),
    Reply(body=b"\xff garbage"),
    Reply(delay_s=0.3),
)
"""Answers that prove nothing, whatever happened."""


@dataclass(slots=True)
class UnreliableSteps(RawSteps):
    """See the module. `done`, `undone` and `sealed` are keys of actions; `order` has undos as they happened."""

    chance: random.Random = field(default_factory=random.Random)
    done: set[str] = field(default_factory=set[str])
    undone: set[str] = field(default_factory=set[str])
    sealed: set[str] = field(default_factory=set[str])
    order: list[str] = field(default_factory=list[str])
    lost: int = 0
    """How many answers proved nothing."""

    def reply_to(self, seen: Seen) -> Reply:
        """What happens, and what is said about it."""
        match seen.metadata["amends-direction"]:
            case "action":
                reply = self._act(seen.metadata["idempotency-key"])
            case "compensation":
                reply = self._undo(seen.metadata["amends-action-key"])
            case _:
                reply = self._find(seen.metadata["amends-action-key"])
        self.lost += reply in LOST
        if reply.code is Code.OK and reply.body is None:
            return Reply(body=GOOD[seen.method], delay_s=reply.delay_s)
        return reply

    def _act(self, key: str) -> Reply:
        if key in self.done:
            return self._pick((DONE, 6), (DONE_BEFORE, 2), *((lost, 1) for lost in LOST))
        if key in self.sealed:
            return SEALED_NO
        reply = self._pick(
            (DONE, 60), (NO, 5), (SEALED_NO, 3), (LATER, 8), (NOT_LET_IN, 2), *((lost, 4) for lost in LOST)
        )
        if reply is SEALED_NO:
            self.sealed.add(key)
        elif reply is DONE or (reply in LOST and self._pick((True, 1), (False, 1))):
            self.done.add(key)
        return reply

    def _undo(self, action_key: str) -> Reply:
        reply = self._pick((DONE, 30), (NO, 1), (LATER, 4), *((lost, 1) for lost in LOST))
        if action_key not in self.done:
            return self._pick((NOT_FOUND, 1), (reply, 1))
        if reply is DONE or (reply in LOST and self._pick((True, 1), (False, 1))):
            if action_key not in self.undone:
                self.order.append(action_key)
            self.undone.add(action_key)
        return reply

    def _find(self, action_key: str) -> Reply:
        if self._pick((True, 1), (False, 4)):
            return self._pick(*((lost, 1) for lost in LOST), (LATER, 1))
        if action_key in self.done:
            return DONE
        if action_key in self.sealed or self._pick((True, 1), (False, 1)):
            self.sealed.add(action_key)
            return SEALED_NOT_FOUND
        return NOT_FOUND

    def _pick(self, *choices: tuple[T, int]) -> T:
        values, weights = [value for value, _ in choices], [weight for _, weight in choices]
        return self.chance.choices(values, weights)[0]
