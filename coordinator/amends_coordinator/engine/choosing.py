"""Which participant a call goes to: decided before its intent is written, and kept with it.

A key that reached two participants would have two effects, and a participant that never had the action would take its
undo for undone. So a call is never sent to whoever serves its method at the moment:

* Where the definition or the saga's input names a participant, that one has all calls of the step.
* Else the one participant that serves the method's service is chosen when an attempt is announced. If nobody does, or
  several do, none is: the attempt isn't sent, and the next one chooses again.
* While nothing of the call can have happened the choice may change. As soon as an attempt ended unknown it stays, also
  if its participant is away and another one has come.
* The undo and the lookup go to the participant that has the action, unless it doesn't serve their service and another
  one does. That it is away, or was taken out, doesn't count: it has the action, and whoever else serves the service
  hasn't.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from amends_coordinator.core.states import Direction

if TYPE_CHECKING:
    from amends_coordinator.core.decision import Decision
    from amends_coordinator.core.saga import Intent, Saga
    from amends_coordinator.definitions.compiled import CompiledDefinition
    from amends_coordinator.ports.directory import Directory


def choose_participants(decision: Decision, definition: CompiledDefinition, directory: Directory) -> None:
    """Fill in who is called by the attempts that a decision announces, before it is written.

    Raises:
        PayloadError: the stored input, which names a participant, was damaged.
    """
    for intent in decision.records.announced:
        if not intent.participant or not intent.unsettled:
            decision.fill_participant(intent, _participant(decision.saga, intent, definition, directory))


def _participant(saga: Saga, intent: Intent, definition: CompiledDefinition, directory: Directory) -> str:
    named = definition.participant(saga, intent.step)
    if named:
        return named
    service = _service(intent)
    action = None if intent.direction is Direction.ACTION else saga.intent(intent.step, Direction.ACTION)
    has_it = "" if action is None else action.participant
    if action is not None and has_it and (_service(action) == service or directory.may_serve(has_it, service)):
        return has_it
    serving = directory.serving(service)
    return serving[0] if len(serving) == 1 else ""


def _service(intent: Intent) -> str:
    return intent.method.partition("/")[0]
