"""Options of steps and calls: who wins, what is filled in, and what the core sees of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from google.protobuf import text_format
from hypothesis import given
from hypothesis import strategies as st

from amends.v1 import annotations_pb2
from amends.v1 import saga_definition_pb2 as pb
from amends_coordinator.core.answer import REJECTED_CODES
from amends_coordinator.core.ids import StepName
from amends_coordinator.core.plan import StepPlan
from amends_coordinator.core.saga import Failure, Saga
from amends_coordinator.core.states import Direction, Guarantee, OnUnknown
from amends_coordinator.definitions.codes import CodeSets
from amends_coordinator.definitions.compiled import CompiledDefinition, compile_definition
from amends_coordinator.definitions.registration import InvalidDefinitionError, resolve
from definitions_test.v1 import lodging_pb2
from tests.unit.definitions.samples import (
    ANNOUNCED,
    PACKAGE,
    SERVICE,
    TRIP,
    definition,
    intent,
    registered,
    saga,
    stored,
)

HEAD = f'name: "trip" input_type: "{PACKAGE}.Trip"'
FREE = f'method: "{SERVICE}/Free" request {{ bindings {{ target: "reason" input: "guest" }} }}'
HOUR_US = 3_600_000_000
A, UNDO = StepName("a"), Direction.COMPENSATION


def held(action: str = "", undo: str = "", lookup: str = "", *, said: str = "", kind: str = "") -> str:
    """A definition with one step whose three methods are annotated in full."""
    calls = f'action {{ method: "{SERVICE}/Hold" {action} }}'
    if not kind:
        calls += f"compensation {{ {FREE} {undo} }}"
    if lookup:
        calls += f'lookup {{ method: "{SERVICE}/FindHold" {lookup} }}'
    return f'{HEAD} steps {{ name: "a" {kind} {said} {calls} }}'


def first(text: str) -> StepPlan:
    """The plan of the first step; resolving its definition again changes nothing."""
    resolved = registered(definition(text))
    assert resolve(resolved) == resolved
    return compile_definition(stored(resolved)).plan.steps[0]


def test_annotations_fill_what_the_definition_leaves_open() -> None:
    """Promise: everything that the methods say is stored with the definition, so a later deploy changes no saga."""
    step = first(held())
    assert step.action.rejected_codes == REJECTED_CODES - {"NOT_FOUND", "ALREADY_EXISTS"} | {"DATA_LOSS"}
    assert step.action.already_done_codes == {"ALREADY_EXISTS"}
    assert step.action.idempotency_window_us == HOUR_US
    assert step.compensation is not None
    assert step.compensation.nothing_to_undo_codes == {"OUT_OF_RANGE", "FAILED_PRECONDITION"}
    assert step.compensation.idempotency_window_us == 2 * HOUR_US
    assert step.lookup is not None
    assert step.lookup.idempotency_window_us == 0
    resolved = registered(definition(held())).steps[0]
    assert list(resolved.action.added_rejected_codes) == [annotations_pb2.STATUS_CODE_DATA_LOSS]
    assert resolved.on_unknown == pb.ON_UNKNOWN_COMPENSATE


def test_without_a_word_the_usual_codes_count() -> None:
    """S4: a clear no is one of the five documented codes; NOT_FOUND says that there was nothing to undo."""
    step = first(TRIP)
    assert (step.action.rejected_codes, step.action.already_done_codes) == (REJECTED_CODES, frozenset())
    assert step.compensation is not None
    assert step.compensation.nothing_to_undo_codes == {"NOT_FOUND"}
    assert (step.on_unknown, step.settle_delay_us, step.at_most_once) == (OnUnknown.COMPENSATE, None, False)
    assert step.action.idempotency_window_us == 0


@pytest.mark.parametrize(
    ("said", "rejected", "already_done"),
    [
        ("added_rejected_codes: STATUS_CODE_NOT_FOUND", {"NOT_FOUND", "DATA_LOSS"}, {"ALREADY_EXISTS"}),
        ("added_rejected_codes: STATUS_CODE_ALREADY_EXISTS", {"ALREADY_EXISTS", "DATA_LOSS"}, set[str]()),
        ("removed_rejected_codes: STATUS_CODE_DATA_LOSS", set[str](), {"ALREADY_EXISTS"}),
        ("removed_rejected_codes: STATUS_CODE_ALREADY_EXISTS", {"DATA_LOSS"}, set[str]()),
        ("already_done_codes: STATUS_CODE_DATA_LOSS", {"ALREADY_EXISTS"}, {"DATA_LOSS"}),
        (
            "removed_rejected_codes: STATUS_CODE_NOT_FOUND already_done_codes: STATUS_CODE_NOT_FOUND",
            {"ALREADY_EXISTS", "DATA_LOSS"},
            {"NOT_FOUND"},
        ),
    ],
)
def test_the_definitions_word_about_a_code_wins(said: str, rejected: set[str], already_done: set[str]) -> None:
    """Promise: what a definition says wins over the annotation, code by code, and again when it is registered again."""
    step = first(held(said))
    always = {"FAILED_PRECONDITION", "INVALID_ARGUMENT", "OUT_OF_RANGE"}
    assert step.action.rejected_codes == always | rejected
    assert step.action.already_done_codes == already_done


def test_a_list_that_is_empty_on_purpose_stays_empty() -> None:
    """S4: a compensation for which no answer means that there was nothing to undo."""
    for said, codes in (
        ("nothing_to_undo_codes {}", set[str]()),
        ("nothing_to_undo_codes { codes: [STATUS_CODE_NOT_FOUND, STATUS_CODE_NOT_FOUND] }", {"NOT_FOUND"}),
    ):
        step = first(held(undo=said))
        assert step.compensation is not None
        assert step.compensation.nothing_to_undo_codes == codes


def test_a_step_that_can_have_no_lookup_forgets_what_asks_it() -> None:
    """Promise: an annotation is a default, and none where the step has no use for it."""
    step = first(held(kind="kind: STEP_KIND_READ_ONLY"))
    assert (step.action.already_done_codes, step.lookup) == (frozenset(), None)
    assert "ALREADY_EXISTS" in step.action.rejected_codes


def test_a_step_promises_what_the_weakest_of_its_calls_does() -> None:
    """S4: nothing is claimed that one of the three methods doesn't keep."""
    assert first(held()).guarantee is Guarantee.BARRIER
    for weakened in (held("guarantee: GUARANTEE_KEY"), held(undo="guarantee: GUARANTEE_KEY")):
        assert first(weakened).guarantee is Guarantee.KEY
    assert first(held(lookup="guarantee: GUARANTEE_NONE")).guarantee is Guarantee.NONE
    assert first(held(said="guarantee: GUARANTEE_NONE")).guarantee is Guarantee.NONE
    assert first(held("guarantee: GUARANTEE_KEY", said="guarantee: GUARANTEE_NONE")).guarantee is Guarantee.NONE
    assert first(held("guarantee: GUARANTEE_BARRIER", undo="guarantee: GUARANTEE_BARRIER")).guarantee is (
        Guarantee.BARRIER
    )


def test_one_barrier_serves_one_service() -> None:
    """S4, V17: an undo at another service knows nothing of the action, whatever both promise."""
    written = definition(held())
    written.descriptors.CopyFrom(ANNOUNCED)
    lodging = next(file for file in written.descriptors.file if file.name.endswith("lodging.proto"))
    lodging.service.add().CopyFrom(lodging.service[0])
    lodging.service[1].name = "OtherService"
    written.steps[0].compensation.method = f"{PACKAGE}.OtherService/Free"
    step = compile_definition(stored(resolve(written))).plan.steps[0]
    assert step.guarantee is Guarantee.KEY
    assert not step.lookup_seals
    assert step.compensation is not None
    assert not step.compensation.by_key


def test_under_one_barrier_the_lookup_seals_and_the_undo_goes_by_key() -> None:
    """S4: what runs under the action's own barrier finds its work by the action's key."""
    step = first(held())
    assert step.lookup_seals
    assert step.compensation is not None
    assert step.compensation.by_key
    assert not first(held("guarantee: GUARANTEE_KEY")).lookup_seals
    behind = first(f'{HEAD} steps {{ name: "a" kind: STEP_KIND_RETRIABLE action {{ method: "{SERVICE}/Hold" }} }}')
    assert behind.lookup is not None
    assert (behind.guarantee, behind.lookup_seals) == (Guarantee.BARRIER, False), "a retriable step's never does"


def test_under_a_barrier_what_fills_the_undo_is_still_asked_for() -> None:
    """S4: only who says `by_key` says that the request may be empty; a renamed field stays a fault."""
    with pytest.raises(InvalidDefinitionError, match="nothing fills reason"):
        registered(definition(f'{HEAD} steps {{ name: "a" action {{ method: "{SERVICE}/Hold" }} }}'))


def test_under_a_barrier_the_undo_is_built_without_the_response() -> None:
    """S4: the barrier knows the key even when the response never arrived."""
    of = compile_definition(stored(registered(definition(held()))))
    request = of.bind(saga(of, lodging_pb2.Trip(guest="Ada").SerializeToString(), intent("a", b"", None)), A, UNDO)
    assert lodging_pb2.FreeRequest.FromString(request) == lodging_pb2.FreeRequest(reason="Ada")


def test_doubt_is_decided_as_the_step_says() -> None:
    """S4: parking, waiting for the lookup, and calling at most once are the author's choice."""
    step = first(held(said="on_unknown: ON_UNKNOWN_PARK settle_delay { seconds: 90 } at_most_once: true"))
    assert (step.on_unknown, step.settle_delay_us, step.at_most_once) == (OnUnknown.PARK, 90_000_000, True)
    assert first(
        f'{HEAD} steps {{ name: "a" kind: STEP_KIND_PIVOT at_most_once: true action {{ method: "{SERVICE}/Pay" }} }}'
    ).at_most_once


def test_whose_response_is_read() -> None:
    """S3: a person who says that a call happened gives its response exactly where something reads it."""
    later = 'bindings { target: "key" step_response { step: "a" path: "booking_id" } }'
    told = f'on_compensated {{ name: "t" action {{ method: "{SERVICE}/Everything" request {{ {later} }} }} }}'
    book = f'steps {{ name: "a" action {{ method: "{SERVICE}/Book" }} '
    unread = f'compensation {{ method: "{SERVICE}/Close" }} }}'
    assert [each.response_read for each in compile_definition(stored(registered(definition(TRIP)))).plan.steps] == [
        True,
        True,
        False,
    ]
    assert not first(f"{HEAD} {book} {unread}").response_read
    assert first(f"{HEAD} {book} {unread} {told}").response_read
    assert first(f"{HEAD} {book} }}").response_read, "its own compensation, by name"
    asked = 'bindings { target: "guest" step_response { step: "a" path: "booking_id" } }'
    later = f'steps {{ name: "b" kind: STEP_KIND_PIVOT action {{ method: "{SERVICE}/Book" }} lookup {{ method: '
    later += f'"{SERVICE}/FindBooking" request {{ {asked} }} }} }}'
    assert first(f"{HEAD} {book} {unread} {later}").response_read, "the lookup of a later step"


def telling(undo: str, told: str) -> CompiledDefinition:
    """A saga whose undo and whose last word say something."""
    text = (
        f'{HEAD} steps {{ name: "a" action {{ method: "{SERVICE}/Book" }}'
        f' compensation {{ method: "{SERVICE}/Cancel" request {{ {undo} }} }} }}'
        f' on_compensated {{ name: "t" action {{ method: "{SERVICE}/Everything" request {{ {told} }} }} }}'
    )
    return compile_definition(stored(registered(definition(text))))


def failed(of: CompiledDefinition, failure: Failure | None, *steps: str) -> Saga:
    """A saga that rolled back, after these steps."""
    intents = [intent(step, lodging_pb2.BookRequest(guest="Ada").SerializeToString(), b"") for step in steps]
    rolled_back = saga(of, b"", *intents)
    return Saga(
        id=rolled_back.id,
        plan=rolled_back.plan,
        failure=failure,
        intents=rolled_back.intents,
        created_time=rolled_back.created_time,
        updated_time=rolled_back.updated_time,
        progress_time=rolled_back.progress_time,
        deadline_time=rolled_back.deadline_time,
    )


def test_the_failure_is_told() -> None:
    """Promise: a compensation, and what follows the last of them, can say why; what isn't known is empty."""
    fields = (("key", "REASON"), ("saga_id", "MESSAGE"), ("action_key", "STEP"), ("action_key_uuid", "STATUS_CODE"))
    told = "".join(f'bindings {{ target: "{target}" failure: FAILURE_FIELD_{name} }}' for target, name in fields)
    of = telling('bindings { target: "reason" failure: FAILURE_FIELD_MESSAGE }', told)
    why = Failure(
        step=A, reason="DECLINED", status_code="FAILED_PRECONDITION", message="no", time=saga(of, b"").created_time
    )
    last = lodging_pb2.EverythingRequest.FromString(of.bind(failed(of, why), StepName("t"), Direction.ACTION))
    assert (last.key, last.saga_id, last.action_key, last.action_key_uuid) == (
        "DECLINED",
        "no",
        "a",
        "FAILED_PRECONDITION",
    )
    undo = lodging_pb2.CancelRequest.FromString(of.bind(failed(of, why, "a"), A, UNDO))
    assert undo.reason == "no"
    nobody = Failure(step=None, reason="", status_code="", message="", time=why.time)
    for unknown in (nobody, None):
        empty = of.bind(failed(of, unknown), StepName("t"), Direction.ACTION)
        assert lodging_pb2.EverythingRequest.FromString(empty) == lodging_pb2.EverythingRequest()


def test_what_never_happened_is_not_told() -> None:
    """L1: what follows the last compensation is built whatever the saga came to."""
    told = (
        'bindings { target: "key" step_request { step: "a" path: "guest" } }'
        'bindings { target: "saga_id" step_response { step: "a" path: "guest" } }'
    )
    of = telling("", told)
    for steps, key in (((), ""), (("a",), "Ada")):
        request = of.bind(failed(of, None, *steps), StepName("t"), Direction.ACTION)
        assert lodging_pb2.EverythingRequest.FromString(request) == lodging_pb2.EverythingRequest(key=key)


def test_a_definition_of_the_release_before_still_runs() -> None:
    """S4, L1: what is stored is never registered again; fields that it doesn't have count as what was known then."""
    text = (Path(__file__).parent / "earlier" / "trip.txtpb").read_text("utf-8")
    before = text_format.Parse(text, pb.SagaDefinition())
    before.descriptors.CopyFrom(ANNOUNCED)
    of = compile_definition(stored(before))
    now = compile_definition(stored(registered(definition(TRIP)))).plan
    assert of.plan.steps == now.steps, "Book promises a barrier, but nothing was known of Cancel and FindBooking"
    assert (of.plan.on_compensated, of.plan.timeout_us) == ((), now.timeout_us)


CODES = st.frozensets(st.sampled_from(annotations_pb2.StatusCode.values()), max_size=3)
CODE_SETS = st.builds(CodeSets, CODES, CODES, CODES)


@given(CODE_SETS, CODE_SETS)
def test_saying_it_twice_changes_nothing(said: CodeSets, annotated: CodeSets) -> None:
    """Promise: whatever a definition and an annotation say of a code, what is stored means the same again."""
    once = said.before(annotated)
    assert once.before(annotated) == once
    assert (once.added >= said.added, once.removed >= said.removed, once.done >= said.done) == (True, True, True)
