"""Stories: what happens to a saga and what is decided, as a text that a person can read and a test can check.

A line at the margin is an event, the indented lines below it are the whole decision:

    start
      call reserve action #1
    reserve OK
      reserve action SUCCEEDED
      saga COMMITTED

Events are `start`, `wake` (at the due time), `adopt`, `driver fails`, `binding of STEP DIRECTION fails`, and answers: a
step, the direction if it isn't its action, `#n` if it isn't the newest attempt, then `OK`, a gRPC code, `garbage` or
`not sent`, then perhaps `sealed`, `executed=no`, `abort=WORD`, `reason=WORD` or `retry_in=SECONDS`. People `abort`,
`terminate`, `run now`, and act on the newest dead letter of a call (or of the `saga`): `retry reserve action`, with
`forced` behind it or not, `ask reserve action`, `resolve reserve action HAPPENED`, with `response=WORD` behind it or
not. A second passes before each event; `[12s]` before it says when it happens instead.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator

from amends_coordinator.core.answer import EXECUTED_TRAILER, SEALED_TRAILER, Answer, classify
from amends_coordinator.core.decide import decide
from amends_coordinator.core.decision import Decision
from amends_coordinator.core.effects import (
    DIRECTION_OF,
    CallAction,
    CallCompensation,
    CallLookup,
    CancelCall,
    IgnoreLateAnswer,
)
from amends_coordinator.core.events import Adopted, AttemptEnded, BindingFailed, DriverFailed, Event, Started, Woken
from amends_coordinator.core.ids import DeadLetterId, StepName
from amends_coordinator.core.operate import accept_abort, decide_verb
from amends_coordinator.core.saga import DeadLetter, Intent, Saga
from amends_coordinator.core.states import Direction, Outcome, Resolution
from amends_coordinator.core.verbs import (
    AskFirst,
    ResolveDeadLetter,
    RetryDeadLetter,
    RunNow,
    Terminate,
    Verb,
    VerbRefusedError,
)
from tests.unit.core.sagas import SECOND, at

WHEN = re.compile(r"\[([\d.]+)s\] (.*)")
BINDING = re.compile(r"binding of (\w+) (\w+) fails")
ANSWER = re.compile(r"(?P<step>\w+)(?: (?P<direction>action|lookup|compensation))?(?: #(?P<attempt>\d+))? (?P<said>.+)")
VERB = re.compile(r"(?P<verb>retry|ask|resolve) (?:saga|(?P<step>\w+) (?P<direction>\w+))(?P<rest>.*)")
PERSON = "rosa"


def play(saga: Saga, story: str) -> Saga:
    """Feed a story's events to the core and compare what it decides with what the story says; answers the last saga."""
    expected = [line for line in textwrap.dedent(story).splitlines() if line.strip()]
    told: list[str] = []
    now_s = -1.0
    for line in expected:
        if line.startswith(" "):
            continue
        when = WHEN.fullmatch(line)
        now_s = float(when[1]) if when else now_s + 1
        said = when[2] if when else line
        told.append(line)
        if said == "abort":
            saga, words = _abort(saga, now_s)
        elif (verb := _verb(saga, said, now_s)) is not None:
            saga, words = _asked(saga, verb)
        else:
            event, now_s = _event(saga, said, now_s)
            decision = decide(saga, event)
            saga, words = decision.saga, [*_decided(saga, decision)]
        told += [f"  {word}" for word in words]
    assert told == expected, "\n".join(("the core told this story:", *told))
    return saga


def _abort(saga: Saga, now_s: float) -> tuple[Saga, list[str]]:
    aborted = accept_abort(saga, "changed my mind", at(now_s).now)
    if aborted is None:
        return saga, ["refused: PAST_POINT_OF_NO_RETURN"]
    return aborted, ["accepted" if aborted is not saga else "accepted, nothing changes"]


def _verb(saga: Saga, said: str, now_s: float) -> Verb | None:
    if said == "run now":
        return RunNow(at=at(now_s))
    if said == "terminate":
        return Terminate(at=at(now_s), reason="enough")
    found = VERB.fullmatch(said)
    if found is None:
        return None
    letter = _newest_letter(saga, found["step"], found["direction"])
    match found["verb"]:
        case "retry":
            return RetryDeadLetter(at=at(now_s), letter=letter, forced="forced" in found["rest"])
        case "ask":
            return AskFirst(at=at(now_s), letter=letter)
        case _:
            resolution, _, response = found["rest"].strip().partition(" response=")
            return ResolveDeadLetter(
                at=at(now_s),
                letter=letter,
                resolution=Resolution[resolution],
                person=PERSON,
                response=response.encode() or None,
            )


def _newest_letter(saga: Saga, step: str | None, direction: str | None) -> DeadLetterId:
    where = (None, None) if direction is None else (step, Direction[direction.upper()])
    letters: list[DeadLetter] = [each for each in saga.dead_letters if (each.step, each.direction) == where]
    return letters[-1].id if letters else DeadLetterId("there is none")


def _asked(saga: Saga, verb: Verb) -> tuple[Saga, list[str]]:
    try:
        decision = decide_verb(saga, verb)
    except VerbRefusedError as error:
        return saga, [f"refused: {error.refusal.name}"]
    return decision.saga, [*_decided(saga, decision)]


def _event(saga: Saga, line: str, now_s: float) -> tuple[Event, float]:
    if line == "start":
        return Started(at(now_s)), now_s
    if line == "driver fails":
        return DriverFailed(at(now_s), "a fault of the coordinator's own"), now_s
    if line == "adopt":
        return Adopted(at(now_s, node="node-2")), now_s
    if line == "wake":
        assert saga.due_time is not None, "nothing is due"
        due_s = max(now_s, saga.due_time / SECOND)
        return Woken(at(due_s)), due_s
    if binding := BINDING.fullmatch(line):
        return BindingFailed(at(now_s), StepName(binding[1]), Direction[binding[2].upper()], "no such field"), now_s
    return _answered(saga, line, now_s), now_s


def _answered(saga: Saga, line: str, now_s: float) -> AttemptEnded:
    found = ANSWER.fullmatch(line)
    assert found is not None, f"no event: {line}"
    name, direction = StepName(found["step"]), Direction[(found["direction"] or "action").upper()]
    intent = saga.intent(name, direction)
    newest = intent.attempt if intent is not None else 1
    return AttemptEnded(at(now_s), name, direction, int(found["attempt"] or newest), answer(found["said"]))


def answer(said: str) -> Answer:
    """An answer from its words: a code, then what came with it."""
    if said == "not sent":
        return Answer(outcome=Outcome.NOT_SENT, message="no connection")
    code, *rest = said.split()
    extras = {name: value for name, _, value in (word.partition("=") for word in rest)}
    trailers = {SEALED_TRAILER: "1" if "sealed" in extras else "", EXECUTED_TRAILER: extras.get("executed", "")}
    status_code = "OK" if code == "garbage" else code
    outcome = classify(status_code, trailers, parses=code != "garbage")
    return Answer(
        outcome=outcome,
        status_code=status_code,
        message="" if code == "OK" else f"it said {code}",
        reason=extras.get("reason", ""),
        response=b"done" if code == "OK" else None,
        sealed="sealed" in extras,
        abort_reason=extras.get("abort"),
        retry_delay_us=int(extras["retry_in"]) * SECOND if "retry_in" in extras else None,
    )


def _decided(before: Saga, decision: Decision) -> Iterator[str]:
    """A decision in words: rows, saga, dead letters, calls."""
    after = decision.saga
    for intent in decision.records.intents:
        yield from _row(before.intent(*intent.key), intent)
    if after.point_of_no_return_passed is not before.point_of_no_return_passed:
        yield f"point of no return {'passed' if after.point_of_no_return_passed else 'cleared'}"
    if after.state is not before.state:
        yield f"saga {after.state}" + _why(before, after)
    if after.unproven and not before.unproven:
        yield "unproven"
    for letter in decision.records.dead_letters:
        where = f"{letter.step} {str(letter.direction).lower()}" if letter.step else "saga"
        yield f"dead letter{' closed' if letter.closed_time is not None else ''}: {where} {letter.reason}"
    yield from _done(decision)


def _done(decision: Decision) -> Iterator[str]:
    late = False
    for effect in decision.effects:
        match effect:
            case CallAction() | CallCompensation() | CallLookup():
                yield f"call {effect.step} {DIRECTION_OF[type(effect)].lower()} #{effect.attempt}"
            case CancelCall():
                yield f"cancel {effect.step} {effect.direction.lower()}"
            case IgnoreLateAnswer():
                late = True
                yield "late answer dropped"
            case _:
                pass
    if not decision.changed and not late:
        yield "nothing"


def _row(before: Intent | None, intent: Intent) -> Iterator[str]:
    name = f"{intent.step} {intent.direction.lower()}"
    if before is not None and before.state is not intent.state:
        yield f"{name} {intent.state}"
    elif intent.next_attempt_time is not None and (before is None or not before.waiting):
        yield f"{name} waits until {intent.next_attempt_time / SECOND:g}s"


def _why(before: Saga, after: Saga) -> str:
    if before.failure is None and after.failure is not None:
        return f", {after.failure.reason} of {after.failure.step or 'the saga'}"
    return ""
