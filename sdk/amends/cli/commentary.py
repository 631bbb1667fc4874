"""Prints what a coordinator tells of its sagas and participants: a line for each thing that happens.

Texts that others wrote are printed as text, cut and escaped, as everywhere.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.text import Text

from amends.cli.formats import LONGEST_NAME, cut, duration
from amends.cli.show import BACKWARD, BAD, BUSY, GOOD, OUTCOME_STYLES, QUIET, STATE_STYLES, console

if TYPE_CHECKING:
    from amends_coordinator.bootstrap import happenings as told

ARROWS = {"ACTION": "→", "COMPENSATION": "←", "LOOKUP": "?"}
FOUND = {
    "ACTION": "happened or did-not-happen",
    "COMPENSATION": "happened or undone-by-hand",
    "LOOKUP": "happened or did-not-happen",
}
"""What a person may have found about a parked call, in most cases; what can't be is refused with a sentence."""
OF_THE_STATE = frozenset({"NOTHING_TO_UNDO", "PARKED", "RESOLVED", "DROPPED"})
"""States that say more than the outcome of the last attempt."""
ENDS = frozenset({"COMMITTED", "COMPENSATED"})


class Commentary:
    """Prints happenings to standard output. One that can't be printed, because nobody reads any more, is lost.

    Args:
        ledger: what the first line says of the ledger.
    """

    def __init__(self, *, ledger: str) -> None:
        self._console = console()
        self._ledger = ledger
        self._address = ""
        self._before: list[told.Happening] = []
        self._said: dict[str, dict[tuple[str, str], str]] = {}

    def ready(self, address: str) -> None:
        """The coordinator answers requests."""
        self._address = address
        self._print(Text(f"listening on {address}; {self._ledger}; Ctrl-C ends it"))
        for happening in self._before:
            self.tell(happening)

    def tell(self, happening: told.Happening) -> None:
        """Something happened; what is told before anybody could ask, such as who was here before a restart, waits."""
        if not self._address:
            self._before.append(happening)
            return
        for line in self._lines(happening):
            self._print(line)

    def _print(self, line: Text) -> None:
        try:
            self._console.print(line, soft_wrap=True)
            self._console.file.flush()
        except OSError:
            return

    def _lines(self, happening: told.Happening) -> Iterator[Text]:
        from amends_coordinator.bootstrap import happenings as told

        match happening:
            case told.SagaBegan():
                yield _of(happening.saga_id).append(f"began  {cut(happening.definition, LONGEST_NAME)}")
            case told.CallEnded():
                yield self._ended(happening)
            case told.CallRepeated():
                line = _call(happening.saga_id, happening.step, happening.direction, happening.method)
                line.append("called again", BUSY)
                yield line.append(f"  attempt {happening.attempt}: who called before heard no answer", QUIET)
            case told.CallWaits():
                yield from _waits(happening)
            case told.DeadLetterOpened():
                yield from self._dead_letter(happening)
            case told.SagaMoved():
                if happening.state in ENDS:
                    self._said.pop(happening.saga_id, None)
                yield _moved(happening)
            case told.ParticipantCame():
                served = ", ".join(cut(service, 2 * LONGEST_NAME) for service in happening.services)
                line = Text("+ ", GOOD).append(cut(happening.participant), "bold")
                yield line.append(f"  at {cut(happening.address)} serves {served}")
            case told.ParticipantWent():
                line = Text("- ", BACKWARD).append(cut(happening.participant), "bold").append("  ")
                how = "has not been heard of for a whole lease" if happening.unheard else "has left"
                yield line.append(f"at {cut(happening.address)} {how}")

    def _ended(self, call: told.CallEnded) -> Text:
        """A call's line; what every attempt says alike is said once."""
        said = "".join(f"  {cut(text)}" for text in (call.status_code, call.said) if text)
        if call.state == "SUCCEEDED":
            return _ended(call, "")
        before = self._said.setdefault(call.saga_id, {})
        key = (call.step, call.direction.value)
        known, before[key] = before.get(key), said
        return _ended(call, "  as before" if said and said == known else said)

    def _dead_letter(self, letter: told.DeadLetterOpened) -> Iterator[Text]:
        """What only a person can decide, and the commands that do it, ready to be copied."""
        where = f"{letter.step} {letter.direction.lower()}" if letter.step and letter.direction else "the saga"
        line = _of(letter.saga_id).append("needs a person", BAD)
        line.append(f"  {cut(where, 2 * LONGEST_NAME)}  {letter.reason.value}")
        yield line.append(f"  {cut(letter.said)}" if letter.said else "")
        yield self._command("amends deadletter retry", letter, "--reason 'mended'")
        if letter.direction:
            yield self._command("amends deadletter resolve", letter, "FOUND --reason 'looked it up'")
            yield Text(f"    where FOUND is {FOUND[letter.direction]}", QUIET)

    def _command(self, command: str, letter: told.DeadLetterOpened, rest: str) -> Text:
        elsewhere = "" if self._address.endswith(":7070") else f" --coordinator {self._address}"
        return Text(f"    {command} {shlex.quote(cut(letter.dead_letter_id, 256))} {rest}{elsewhere}", BUSY)


def _of(saga_id: str) -> Text:
    return Text(cut(saga_id, 128), "bold").append("  ", "not bold")


def _call(saga_id: str, step: str, direction: str, method: str) -> Text:
    """The beginning of a line about a call: the saga, the step, which way, the method without its service."""
    name = method.rpartition("/")[2]
    return _of(saga_id).append(f"{cut(step, LONGEST_NAME)} {ARROWS[direction]} {cut(name, LONGEST_NAME)}  ")


def _ended(call: told.CallEnded, said: str) -> Text:
    line = _call(call.saga_id, call.step, call.direction, call.method)
    if call.outcome is None or call.state in OF_THE_STATE:
        line.append(call.state.lower().replace("_", " "), STATE_STYLES[call.state])
    else:
        outcome = call.outcome.lower().replace("_", " ")
        line.append(outcome, OUTCOME_STYLES[outcome])
    if call.took_us:
        line.append(f"  {duration(call.took_us)}")
    if call.attempt > 1:
        line.append(f"  attempt {call.attempt}", QUIET)
    line.append(said)
    if call.in_doubt and call.outcome == "REJECTED":
        line.append("  no proof, because an attempt before ended unknown", QUIET)
    if call.again_in_us is not None:
        line.append(f"  again in {duration(max(0, call.again_in_us))}", BUSY)
    return line


def _waits(call: told.CallWaits) -> Iterator[Text]:
    line = _call(call.saga_id, call.step, call.direction, call.method).append("waits", BUSY)
    yield line.append(f"  {cut(call.why)}")
    if not call.nobody_serves_it:
        return
    if not call.serving:
        yield Text("    no participant is here: start yours; the saga goes on by itself", QUIET)
    for participant, services in call.serving:
        served = ", ".join(cut(service, 2 * LONGEST_NAME) for service in services)
        yield Text(f"    here is {cut(participant)}, which serves {served}", QUIET)


def _moved(saga: told.SagaMoved) -> Text:
    line = _of(saga.saga_id).append(saga.state, STATE_STYLES[saga.state])
    if saga.state in ENDS:
        line.append(f" in {duration(saga.took_us)}")
    if saga.failure_message or saga.failure_reason:
        who = f"{saga.failed_step}: " if saga.failed_step else ""
        line.append(f"  {cut(who + saga.failure_message)} [{cut(saga.failure_reason, LONGEST_NAME)}]")
    if saga.unproven:
        line.append("  unproven: it rests on an assumption", BACKWARD)
    return line
