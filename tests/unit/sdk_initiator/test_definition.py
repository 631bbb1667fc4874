"""A described saga becomes a definition that needs nothing else: data, descriptors and annotations."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta

from google.protobuf import descriptor_pool
from google.protobuf.duration_pb2 import Duration
from grpc import StatusCode

from amends import Codes, CompensationFailurePolicy, Guarantee, OnUnknown, Retry, Saga
from amends.descriptors import step_options
from amends.v1 import annotations_pb2 as codes
from amends.v1 import saga_definition_pb2 as pb
from amends_coordinator.definitions.registration import resolve
from tests.unit.sdk_initiator.travel import (
    Book,
    CancelBooking,
    Charge,
    FindBooking,
    Issue,
    Mail,
    Quote,
    Refund,
    new_saga,
    whole_saga,
)
from typed.v1.typed_pb2 import PlanTrip, TripPlanned


def test_every_part_of_the_description_is_in_the_definition() -> None:
    """Typed SDK: what was said is what is sent."""
    definition = whole_saga().definition()
    assert (definition.name, definition.input_type, definition.output_type) == (
        "trip",
        "typed.v1.PlanTrip",
        "typed.v1.TripPlanned",
    )
    assert [(step.name, step.kind, list(step.after)) for step in definition.steps] == [
        ("quote", pb.STEP_KIND_READ_ONLY, []),
        ("book", pb.STEP_KIND_COMPENSATABLE, ["quote"]),
        ("issue", pb.STEP_KIND_PIVOT, ["book"]),
        ("mail", pb.STEP_KIND_RETRIABLE, ["issue"]),
    ]
    assert [step.action.method for step in definition.steps][1] == "typed.v1.TravelService/Book"
    assert definition.steps[1].compensation.method == "typed.v1.TravelService/CancelBooking"
    assert not definition.steps[0].HasField("compensation")
    assert definition.output.bindings[0].step_response == pb.StepField(step="issue", path="ticket_id")
    assert not definition.HasField("timeout")
    assert definition.version == ""


def test_options_of_steps_and_sagas_are_in_the_definition() -> None:
    """Typed SDK: durations, budgets, policies and participants are sent as they were given."""
    saga = Saga(
        "trip",
        input=PlanTrip,
        timeout=timedelta(minutes=5),
        compensation_failure_policy=CompensationFailurePolicy.HALT,
    )
    book = saga.step(
        "book",
        Book(destination="Oslo"),
        timeout=timedelta(milliseconds=1500),
        retry=Retry(initial_delay=timedelta(seconds=1), maximum_refusal_count=3),
        participant="travel",
        guarantee=Guarantee.BARRIER,
    )
    book.compensated_by(
        CancelBooking(), by_key=True, timeout=timedelta(seconds=3), retry=Retry(total_timeout=timedelta(1))
    )
    book.looked_up_by(FindBooking(action_key=saga.action_key), timeout=timedelta(seconds=4))
    definition = saga.definition()
    step = definition.steps[0]
    assert definition.timeout == Duration(seconds=300)
    assert definition.compensation_failure_policy == pb.COMPENSATION_FAILURE_POLICY_HALT
    assert (step.participant, step.guarantee) == ("travel", Guarantee.BARRIER.value)
    assert step.action.timeout == Duration(seconds=1, nanos=500_000_000)
    assert step.action.retry == pb.RetryPolicy(initial_delay=Duration(seconds=1), maximum_refusal_count=3)
    assert (step.compensation.by_key, step.compensation.timeout) == (True, Duration(seconds=3))
    assert step.compensation.retry == pb.RetryPolicy(total_timeout=Duration(seconds=86_400))
    assert (step.lookup.timeout, step.lookup.HasField("retry")) == (Duration(seconds=4), False)
    assert not definition.HasField("output")
    assert definition.output_type == ""


def test_options_of_doubt_are_in_the_definition() -> None:
    """Typed SDK: codes, windows, guarantees of single calls and what is done in doubt are sent as they were given."""
    saga = Saga("trip", input=PlanTrip)
    book = saga.step(
        "book",
        Book(destination="Oslo"),
        codes=Codes(
            added_rejected=[StatusCode.DATA_LOSS, StatusCode.ABORTED],
            removed_rejected={StatusCode.NOT_FOUND},
            already_done=[StatusCode.ALREADY_EXISTS],
        ),
        idempotency_window=timedelta(hours=1),
        on_unknown=OnUnknown.PARK,
        settle_delay=timedelta(minutes=1),
        at_most_once=True,
    )
    book.compensated_by(
        CancelBooking(booking_id=book.response.booking_id, reason=saga.failure.message),
        nothing_to_undo_codes=(),
        idempotency_window=timedelta(hours=2),
        guarantee=Guarantee.NONE,
    )
    book.looked_up_by(FindBooking(action_key=saga.action_key), guarantee=Guarantee.KEY)
    quiet = saga.step("quiet", Charge(), after=())
    quiet.compensated_by(Refund(), by_key=True, nothing_to_undo_codes=[StatusCode.NOT_FOUND])
    saga.pivot("issue", Issue(booking_id=book.response.booking_id), at_most_once=True)
    saga.on_compensated("told", Mail(template=saga.failure.reason))
    saga.on_compensated("beside", Mail(template=saga.failure.step), after=())
    definition = saga.definition()
    step, beside, issue = definition.steps
    assert [codes.StatusCode.Name(code)[12:] for code in step.action.added_rejected_codes] == ["ABORTED", "DATA_LOSS"]
    assert list(step.action.removed_rejected_codes) == [codes.STATUS_CODE_NOT_FOUND]
    assert list(step.action.already_done_codes) == [codes.STATUS_CODE_ALREADY_EXISTS]
    assert step.action.idempotency_window == Duration(seconds=3_600)
    assert (step.on_unknown, step.settle_delay.seconds, step.at_most_once) == (pb.ON_UNKNOWN_PARK, 60, True)
    assert step.compensation.nothing_to_undo_codes == codes.StatusCodes()
    assert step.compensation.HasField("nothing_to_undo_codes")
    assert (step.guarantee, step.action.guarantee) == (0, 0)
    assert (step.compensation.guarantee, step.lookup.guarantee) == (codes.GUARANTEE_NONE, codes.GUARANTEE_KEY)
    assert step.compensation.request.bindings[1].failure == pb.FAILURE_FIELD_MESSAGE
    assert list(beside.compensation.nothing_to_undo_codes.codes) == [codes.STATUS_CODE_NOT_FOUND]
    assert (step.after_none, beside.after_none, list(issue.after), issue.at_most_once) == (
        False,
        True,
        ["book", "quiet"],
        True,
    )
    assert [(each.name, each.after_none) for each in definition.on_compensated] == [("told", False), ("beside", True)]
    resolved = resolve(definition)
    assert [each.kind for each in resolved.on_compensated] == [pb.STEP_KIND_RETRIABLE] * 2
    assert resolved.steps[2].after == ["book", "quiet"]


def test_the_descriptors_are_complete_and_in_order() -> None:
    """Registering needs no running participant: the files suffice, in the order in which they come."""
    files = whole_saga().definition().descriptors.file
    pool = descriptor_pool.DescriptorPool()
    for file in files:
        pool.Add(file)
    assert [file.name for file in files] == sorted({file.name for file in files}, key=[f.name for f in files].index)
    service = pool.FindServiceByName("typed.v1.TravelService")
    assert pool.FindMessageTypeByName("typed.v1.PlanTrip").file.name == "typed/v1/typed.proto"
    options = step_options(service.methods_by_name["Book"])
    assert (options.compensation, options.timeout.seconds) == ("CancelBooking", 2)


def test_the_same_description_gives_the_same_bytes_in_every_process() -> None:
    """A definition is versioned by its content, so a restarted or second client makes no second version."""
    code = "from tests.unit.sdk_initiator.travel import whole_saga; print(whole_saga().fingerprint())"
    path = [entry for entry in sys.path if entry]
    answers = {
        subprocess.run(
            [sys.executable, "-c", f"import sys; sys.path[:0] = {path!r}; {code}"],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert answers == {whole_saga().fingerprint()}


def test_the_coordinator_accepts_what_the_builder_makes() -> None:
    """The builder's rules and the registration's are the same rules."""
    saga = whole_saga()
    saga.steps[1].looked_up_by(FindBooking(action_key=saga.action_key))
    resolved = resolve(saga.definition())
    assert [step.name for step in resolved.steps] == ["quote", "book", "issue", "mail"]
    assert resolved.steps[1].action.timeout == Duration(seconds=2)


def test_an_explicit_empty_field_of_a_compensation_is_not_resolved_by_name() -> None:
    """A compensation's request is resolved at registration, but never against what its author said."""
    named, emptied = new_saga(), new_saga()
    for saga, call in ((named, CancelBooking(reason="x")), (emptied, CancelBooking(reason="x", booking_id=""))):
        book = saga.step("book", Book(destination="Oslo")).compensated_by(call)
        book.looked_up_by(FindBooking(action_key=saga.action_key))
        quote = saga.pivot("quote", Quote(destination="Oslo"))
        saga.output(TripPlanned)(ticket_id=quote.request.destination)
    filled = resolve(named.definition()).steps[0].compensation.request.bindings
    assert [(each.target, each.WhichOneof("source")) for each in filled] == [("booking_id", "step_response")]
    kept = resolve(emptied.definition()).steps[0].compensation.request.bindings
    assert [each.target for each in kept if each.WhichOneof("source") != "default_value"] == []
