"""Visits every reachable state of a small saga, with every event in each of them, and checks every promise on the way.

States are told apart by what can matter to a later decision: times are relative and in ticks, counts end where their
limits are, texts are left out. The search is breadth first, so the story of a broken promise is among the shortest.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field

from amends_coordinator.core.decide import decide
from amends_coordinator.core.decision import Decision
from amends_coordinator.core.effects import IgnoreLateAnswer
from amends_coordinator.core.events import Adopted, AttemptEnded, BindingFailed, Event, Moment, Started, Woken
from amends_coordinator.core.ids import Instant, NodeId, SagaId
from amends_coordinator.core.plan import Plan
from amends_coordinator.core.saga import Intent, Saga
from amends_coordinator.core.states import DeadLetterReason, Direction, IntentState, SagaState
from amends_coordinator.core.transitions import IllegalTransitionError
from tests.properties.answers import ANSWERS
from tests.properties.plans import TICK_US
from tests.properties.promises import Move, complaints
from tests.properties.world import World

NODE = NodeId("node-1")


@dataclass(frozen=True, slots=True)
class Node:
    """One reached state: the saga, the world around it, the moment, and how it was reached."""

    saga: Saga
    world: World
    now: Instant
    came_by: Event | None = None
    parent: Node | None = None

    def story(self) -> str:
        """The events that led here, one a line."""
        lines: list[str] = []
        node: Node | None = self
        while node is not None and node.came_by is not None:
            lines.append(f"  {_told(node.came_by)} -> {node.saga.state}")
            node = node.parent
        return "\n".join(reversed(lines))


@dataclass(slots=True)
class Findings:
    """What a search saw. `broken` holds one story per broken promise, at most a few."""

    states: int = 0
    moves: int = 0
    broken: list[str] = field(default_factory=list[str])
    enough: int = 3

    def complain(self, node: Node, event: Event | None, complaint: str) -> None:
        """Note a broken promise with its story."""
        last = "" if event is None else f"\n  {_told(event)}"
        self.broken.append(f"{complaint}\n{node.story()}{last}")

    @property
    def full(self) -> bool:
        """Whether enough stories were found to stop."""
        return len(self.broken) >= self.enough


def search(plan: Plan, *, most_states: int = 1_000_000) -> Findings:
    """Visit every state of a plan's sagas.

    Args:
        plan: a small plan; see `plans`.
        most_states: the search fails if there are more, so that it can't run for ever.
    """
    findings = Findings()
    start = new_saga(plan)
    heals: dict[Hashable, Hashable] = {}
    rests: dict[Hashable, Node] = {}
    seen: dict[Hashable, Node] = {}
    queue: deque[Node] = deque()
    for node in results(start, Started(Moment(start.now, NODE)), findings):
        _enqueue(node, seen, queue)
    while queue and not findings.full and len(seen) < most_states:
        node = queue.popleft()
        _probe(node, findings)
        cure = healing_event(node)
        if cure is None:
            rests[_key(node)] = node
        else:
            heals[_key(node)] = _enqueue(next(results(node, cure, findings), node), seen, queue)
        for event in events_of(node):
            for result in results(node, event, findings):
                _enqueue(result, seen, queue)
    if len(seen) >= most_states:
        findings.broken.append(f"more than {most_states} states: times or counts don't come to an end")
    findings.states = len(seen)
    if not findings.full:
        _demand_healing(seen, heals, rests, findings)
    return findings


def new_saga(plan: Plan) -> Node:
    """A saga of which nothing is announced yet."""
    now = Instant(0)
    deadline_time = Instant(now + plan.timeout_us)
    saga = Saga(
        id=SagaId("s"),
        plan=plan,
        created_time=now,
        updated_time=now,
        progress_time=now,
        deadline_time=deadline_time,
    )
    return Node(saga, World(), now)


def _enqueue(node: Node, seen: dict[Hashable, Node], queue: deque[Node]) -> Hashable:
    key = _key(node)
    if key not in seen:
        seen[key] = node
        queue.append(node)
    return key


def events_of(node: Node) -> Iterator[Event]:
    """Everything that can happen next."""
    saga, now = node.saga, node.now
    if saga.state.ended:
        return
    for intent in saga.intents:
        if intent.in_flight:
            at = Moment(_answer_time(node, intent), NODE)
            for answer in ANSWERS[intent.direction]:
                yield AttemptEnded(at, intent.step, intent.direction, intent.attempt, answer)
    if any(intent.waiting for intent in saga.intents) and saga.due_time is not None:
        yield Woken(Moment(Instant(max(now, saga.due_time)), NODE))
    yield Adopted(Moment(now, NODE))
    if now < saga.deadline_time:
        yield Woken(Moment(saga.deadline_time, NODE))
        yield Adopted(Moment(saga.deadline_time, NODE))


def healing_event(node: Node) -> Event | None:
    """What happens next when every participant answers OK from now on."""
    for intent in node.saga.intents:
        if intent.in_flight:
            answer = ANSWERS[intent.direction][0]
            at = Moment(_answer_time(node, intent), NODE)
            return AttemptEnded(at, intent.step, intent.direction, intent.attempt, answer)
    if node.saga.due_time is None:
        return None
    return Woken(Moment(Instant(max(node.now, node.saga.due_time)), NODE))


def _answer_time(node: Node, intent: Intent) -> Instant:
    return Instant(max(node.now, intent.attempt_start_time + TICK_US))


def results(node: Node, event: Event, findings: Findings) -> Iterator[Node]:
    """Decide an event, check the decision, and give the states after it: bound, and with each binding failed."""
    findings.moves += 1
    try:
        decision = decide(node.saga, event)
    except Exception as error:  # noqa: BLE001 - whatever the core raises here is the finding
        findings.complain(node, event, f"the core raised {type(error).__name__}: {error}")
        return
    heard = node.world.after_event(event)
    for variant in _with_failed_bindings(decision, event):
        after = heard.after_effects(variant.effects)
        move = Move(before=node.saga, event=event, decision=variant, heard=heard, after=after)
        for complaint in complaints(move):
            findings.complain(node, event, complaint)
        yield Node(variant.saga, after, event.at.now, event, node)


def _with_failed_bindings(decision: Decision, event: Event) -> Iterator[Decision]:
    """The decision as it stands, and what becomes of it where a new request can't be built."""
    yield decision
    for intent in decision.records.announced:
        if intent.attempt == 1:
            beside = tuple(other.key for other in decision.records.announced if other is not intent)
            failed = BindingFailed(event.at, intent.step, intent.direction, "no such field", beside)
            second = decide(decision.saga, failed)
            yield from _with_failed_bindings(decision.followed_by(second), event)


def _probe(node: Node, findings: Findings) -> None:
    """Events that must change nothing, or that are illegal here."""
    saga, at = node.saga, Moment(node.now, NODE)
    _demand_illegal(node, Started(at), findings)
    for step in saga.plan.steps:
        for direction in Direction:
            intent = saga.intent(step.name, direction)
            attempt = intent.attempt if intent is not None else 0
            _demand_late(node, AttemptEnded(at, step.name, direction, attempt + 1, ANSWERS[direction][0]), findings)
            if intent is None or not intent.in_flight:
                _demand_late(node, AttemptEnded(at, step.name, direction, attempt, ANSWERS[direction][0]), findings)
            if intent is None or not intent.in_flight or attempt > 1:
                _demand_illegal(node, BindingFailed(at, step.name, direction, "no such field"), findings)
    if saga.state.ended or saga.state is SagaState.COMPENSATION_FAILED:
        for event in (Adopted(Moment(saga.deadline_time, NODE)), Woken(Moment(saga.deadline_time, NODE))):
            if decide(saga, event).changed:
                findings.complain(node, event, f"S8: a {saga.state} saga changed")
    elif saga.due_time is not None:
        _demand_useful_waking(node, saga.due_time, findings)


def _demand_late(node: Node, event: AttemptEnded, findings: Findings) -> None:
    """An answer to a closed call, or to one that was never made, is dropped and counted."""
    decision = decide(node.saga, event)
    dropped = any(isinstance(effect, IgnoreLateAnswer) for effect in decision.effects)
    if decision.changed or not dropped or len(decision.effects) != 1:
        findings.complain(node, event, "a late answer was not dropped")


def _demand_illegal(node: Node, event: Event, findings: Findings) -> None:
    try:
        decide(node.saga, event)
    except IllegalTransitionError:
        return
    findings.complain(node, event, "an event that can't happen here was accepted")


def _demand_useful_waking(node: Node, due_time: Instant, findings: Findings) -> None:
    """Waking too early changes nothing; waking in time changes something, and the next time is later: nothing spins."""
    if node.now < due_time:
        early = Woken(Moment(node.now, NODE))
        if decide(node.saga, early).changed:
            findings.complain(node, early, "L1: waking before the due time changed something")
    due = Woken(Moment(Instant(max(node.now, due_time)), NODE))
    decision = decide(node.saga, due)
    next_time = decision.saga.due_time
    if decision != decide(node.saga, due):
        findings.complain(node, due, "the same saga and event gave two decisions")
    if next_time is not None and next_time <= due.at.now:
        findings.complain(node, due, "L1: the saga wakes up again at once, and again, for nothing")


def _demand_healing(
    seen: dict[Hashable, Node], heals: dict[Hashable, Hashable], rests: dict[Hashable, Node], findings: Findings
) -> None:
    """L1: with participants that answer OK from now on, every saga ends or waits for a person."""
    good: set[Hashable] = {key for key, node in rests.items() if node.saga.state.ended or node.saga.attention_required}
    for key, node in seen.items():
        path: dict[Hashable, None] = {}
        current: Hashable | None = key
        while current is not None and current not in good and current not in path:
            path[current] = None
            current = heals.get(current)
        if current is None or current in path:
            findings.complain(node, None, "L1: participants answer OK from here on, and the saga never ends")
            return
        good.update(path)


def _told(event: Event) -> str:
    at = f"{event.at.now / TICK_US:g}"
    match event:
        case AttemptEnded(step=step, direction=direction, attempt=attempt, answer=answer):
            code = f" {answer.status_code}" if answer.status_code else ""
            return f"{at}: {step} {direction} #{attempt} {answer.outcome}{code}"
        case BindingFailed(step=step, direction=direction):
            return f"{at}: the binding of {step} {direction} failed"
        case _:
            return f"{at}: {type(event).__name__}"


def _key(node: Node) -> Hashable:
    """What can matter to a later decision, or to whether a promise is kept."""
    saga, world = node.saga, node.world
    return (
        saga.state,
        saga.point_of_no_return_passed,
        saga.unproven,
        saga.attention_required,
        any(letter.reason is DeadLetterReason.TIMED_OUT for letter in saga.dead_letters),
        node.now >= saga.deadline_time,
        tuple(_intent_key(saga, intent, node.now) for intent in saga.intents),
        tuple(world.owes_nothing(step.name) or world.happened(step.name) for step in saga.plan.steps),
    )


def _intent_key(saga: Saga, intent: Intent, now: Instant) -> Hashable:
    if intent.state is not IntentState.PENDING:
        # That a lookup was made matters, and no more what it said: the action's row says that.
        state = None if intent.direction is Direction.LOOKUP else intent.state
        return (intent.step, intent.direction, state, intent.unsettled and intent.direction is Direction.ACTION)
    retry = saga.plan.by_name[intent.step].call(intent.direction).retry
    most_ticks = max(1, retry.total_timeout_us // TICK_US - 1)
    since = now if intent.waiting else intent.attempt_start_time
    return (
        intent.step,
        intent.direction,
        intent.unsettled,
        min((now - since) // TICK_US, most_ticks),
        None if intent.next_attempt_time is None else max(0, intent.next_attempt_time - now) // TICK_US,
        intent.refusals,
        min(intent.spent_us, retry.total_timeout_us),
        min(intent.unsent_us, retry.total_timeout_us),
    )
