"""What the status codes of a step's calls mean: from the definition, and where it is silent from the annotations.

The definition's word about a code wins over the annotation's, in whichever list each of them speaks of it. What comes
out is written into the definition, so resolving it once more changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from amends.v1 import annotations_pb2
from amends.v1 import saga_definition_pb2 as pb
from amends_coordinator.definitions.errors import choices

if TYPE_CHECKING:
    from collections.abc import Iterable

    from google.protobuf.internal.containers import RepeatedScalarFieldContainer

    from amends_coordinator.definitions.errors import FaultList

    Codes: TypeAlias = RepeatedScalarFieldContainer[annotations_pb2.StatusCode.ValueType]

ON_ACTIONS = ("added_rejected_codes", "removed_rejected_codes", "already_done_codes")


OF_GRPC = {
    1: "CANCELLED",
    2: "UNKNOWN",
    4: "DEADLINE_EXCEEDED",
    7: "PERMISSION_DENIED",
    8: "RESOURCE_EXHAUSTED",
    12: "UNIMPLEMENTED",
    13: "INTERNAL",
    14: "UNAVAILABLE",
    16: "UNAUTHENTICATED",
}
"""Status codes that gRPC's libraries answer without a participant's doing."""


@dataclass(frozen=True, slots=True)
class CodeSets:
    """What is said about an action's codes in one place."""

    added: frozenset[annotations_pb2.StatusCode.ValueType]
    removed: frozenset[annotations_pb2.StatusCode.ValueType]
    done: frozenset[annotations_pb2.StatusCode.ValueType]

    @classmethod
    def of(cls, said: pb.Call | annotations_pb2.StepOptions) -> CodeSets:
        """What a call or an annotation says."""
        return cls(
            added=frozenset(said.added_rejected_codes),
            removed=frozenset(said.removed_rejected_codes),
            done=frozenset(said.already_done_codes),
        )

    def before(self, annotated: CodeSets) -> CodeSets:
        """This with what the annotation adds about codes that this doesn't speak of."""
        return CodeSets(
            added=self.added | (annotated.added - self.removed - self.done),
            removed=self.removed | (annotated.removed - self.added),
            done=self.done or (annotated.done - self.added - self.removed),
        )


NOTHING_SAID = CodeSets(frozenset(), frozenset(), frozenset())


def fill_action_codes(
    step: pb.Step, options: annotations_pb2.StepOptions | None, path: str, faults: FaultList, *, may_look_up: bool
) -> None:
    """Check and fill in the code sets of a step's action; its guarantee and its lookup are filled in already.

    Args:
        step: the step.
        options: the annotation of its action's method, if it has one.
        path: where the action stands.
        faults: gets what is wrong.
        may_look_up: whether the step could have a lookup; else the annotation's word about one doesn't matter.
    """
    call = step.action
    annotated = CodeSets.of(options) if options is not None else NOTHING_SAID
    if not may_look_up:
        annotated = CodeSets(annotated.added, annotated.removed, frozenset())
    sets = CodeSets.of(call).before(annotated)
    _refuse_compensation_codes(call, path, faults)
    for name, said, found in zip(ON_ACTIONS, _lists(call), (sets.added, sets.removed, sets.done), strict=True):
        del said[:]
        said.extend(sorted(found))
        _check_known(found, f"{path}.{name}", faults)
    _check_overlaps(sets, path, faults)
    for name, codes in ((ON_ACTIONS[0], sets.added), (ON_ACTIONS[2], sets.done)):
        _check_barrier(codes, call, f"{path}.{name}", faults)
    if sets.done and not step.HasField("lookup"):
        faults.add(
            f"{path}.already_done_codes",
            f"{_names(sets.done)} makes the coordinator ask the lookup, and the step has none;"
            " give it one, or leave the codes out",
        )


def fill_compensation_codes(
    call: pb.Call, options: annotations_pb2.StepOptions | None, path: str, faults: FaultList
) -> None:
    """Check and fill in what says that a compensation found nothing to undo."""
    _refuse_action_codes(call, path, faults)
    if not call.HasField("nothing_to_undo_codes"):
        if options is not None and options.HasField("nothing_to_undo_codes"):
            call.nothing_to_undo_codes.CopyFrom(options.nothing_to_undo_codes)
        else:
            call.nothing_to_undo_codes.codes.append(annotations_pb2.STATUS_CODE_NOT_FOUND)
    codes = call.nothing_to_undo_codes.codes
    found = sorted(set(codes))
    del codes[:]
    codes.extend(found)
    _check_known(codes, f"{path}.nothing_to_undo_codes", faults)
    _check_barrier(codes, call, f"{path}.nothing_to_undo_codes", faults)
    if annotations_pb2.STATUS_CODE_ABORTED in codes and call.guarantee == annotations_pb2.GUARANTEE_KEY:
        faults.add(
            f"{path}.nothing_to_undo_codes",
            "ABORTED is what a participant that keeps keys answers while a copy of the call, or the action itself,"
            " runs, so it doesn't say that there is nothing to undo; leave it out",
        )


def refuse_codes_of_lookup(call: pb.Call, path: str, faults: FaultList) -> None:
    """A lookup's answers always mean the same."""
    _refuse_action_codes(call, path, faults)
    _refuse_compensation_codes(call, path, faults)


def _lists(call: pb.Call) -> tuple[Codes, Codes, Codes]:
    return call.added_rejected_codes, call.removed_rejected_codes, call.already_done_codes


def _refuse_action_codes(call: pb.Call, path: str, faults: FaultList) -> None:
    for name, codes in zip(ON_ACTIONS, _lists(call), strict=True):
        if codes:
            faults.add(f"{path}.{name}", "only an action has such codes; leave it out")


def _refuse_compensation_codes(call: pb.Call, path: str, faults: FaultList) -> None:
    if call.HasField("nothing_to_undo_codes"):
        faults.add(f"{path}.nothing_to_undo_codes", "only a compensation has such codes; leave it out")


def _check_known(codes: Iterable[int], path: str, faults: FaultList) -> None:
    known = annotations_pb2.StatusCode.values()
    for code in sorted(codes):
        if code == annotations_pb2.STATUS_CODE_UNSPECIFIED or code not in known:
            known_names = choices("STATUS_CODE_", dict(annotations_pb2.StatusCode.items()))
            made = OF_GRPC.get(int(code))
            what = f"{made} can come from gRPC itself, so it proves nothing" if made else f"{int(code)} is no code"
            faults.add(path, f"{what}; choose one of {known_names}")


def _check_overlaps(sets: CodeSets, path: str, faults: FaultList) -> None:
    for name, codes in (("removed_rejected_codes", sets.removed), ("already_done_codes", sets.done)):
        both = sets.added & codes
        if both:
            faults.add(
                f"{path}.{name}", f"{_names(both)} stands in added_rejected_codes too; leave it out of one of them"
            )


def _check_barrier(
    codes: Iterable[annotations_pb2.StatusCode.ValueType], call: pb.Call, path: str, faults: FaultList
) -> None:
    if annotations_pb2.STATUS_CODE_ABORTED in codes and call.guarantee == annotations_pb2.GUARANTEE_BARRIER:
        faults.add(
            path,
            "ABORTED is what a barrier answers while a copy of the call runs, so under GUARANTEE_BARRIER it proves"
            " nothing; leave it out",
        )


def _names(codes: Iterable[annotations_pb2.StatusCode.ValueType]) -> str:
    known = annotations_pb2.StatusCode.values()
    return ", ".join(code_name(code) if code in known else str(int(code)) for code in sorted(codes))


def code_name(code: annotations_pb2.StatusCode.ValueType) -> str:
    """The gRPC code by name, as gRPC itself calls it."""
    return annotations_pb2.StatusCode.Name(code).removeprefix("STATUS_CODE_")
