"""What registration fills in, and what a definition's version depends on."""

from __future__ import annotations

import pytest
from google.protobuf import json_format
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from amends.cli.payloads import pool_of
from amends.v1 import saga_definition_pb2 as pb
from amends_coordinator.core.plan import RetryPlan
from amends_coordinator.core.states import FailurePolicy, Guarantee, StepKind
from amends_coordinator.definitions.registration import InvalidDefinitionError, resolve
from tests.unit.definitions.samples import (
    ANNOUNCED,
    PACKAGE,
    SERVICE,
    TRIP,
    bindings,
    compiled,
    definition,
    registered,
)

QUICK = RetryPlan(
    initial_delay_us=100_000, maximum_delay_us=5_000_000, total_timeout_us=30_000_000, maximum_refusals=10
)
PATIENT = RetryPlan(
    initial_delay_us=1_000_000, maximum_delay_us=60_000_000, total_timeout_us=3_600_000_000, maximum_refusals=10
)


def test_defaults_by_kind_and_direction() -> None:
    """Promise: budgets and timeouts are those of semantics.md section 5, and annotations come before defaults."""
    plan = compiled().plan
    book, pay, tell = plan.steps
    assert (book.kind, pay.kind, tell.kind) == (StepKind.COMPENSATABLE, StepKind.PIVOT, StepKind.RETRIABLE)
    assert (book.after, pay.after, tell.after) == ((), ("book",), ("pay",))
    assert (book.action.retry, pay.action.retry, tell.action.retry) == (QUICK, QUICK, PATIENT)
    assert (book.action.timeout_us, pay.action.timeout_us) == (2_000_000, 5_000_000)
    assert (book.guarantee, pay.guarantee) == (Guarantee.KEY, Guarantee.KEY), "Cancel and FindBooking promise no more"
    assert book.compensation is not None
    assert book.lookup is not None
    assert (book.compensation.method, book.lookup.method) == (f"{SERVICE}/Cancel", f"{SERVICE}/FindBooking")
    assert (book.compensation.retry, book.lookup.retry) == (PATIENT, PATIENT)
    assert (book.compensation.timeout_us, book.lookup.timeout_us) == (3_000_000, 5_000_000)
    assert plan.timeout_us == 3_600_000_000
    assert plan.failure_policy is FailurePolicy.CONTINUE


def test_a_read_only_step_behind_the_pivot_is_patient() -> None:
    """L1: behind the point of no return a read-only step is repeated like a retriable one."""
    written = definition()
    written.steps[2].kind = pb.STEP_KIND_READ_ONLY
    before = written.steps.add(name="before", kind=pb.STEP_KIND_READ_ONLY)
    before.action.method = f"{SERVICE}/Everything"
    steps = [written.steps[0], before, *written.steps[1:3]]
    reordered = definition()
    del reordered.steps[:]
    reordered.steps.extend(steps)
    resolved = registered(reordered)
    totals = {step.name: step.action.retry.total_timeout.seconds for step in resolved.steps}
    assert totals == {"book": 30, "before": 30, "pay": 30, "tell": 3_600}


def test_requests_are_resolved_by_name() -> None:
    """Promise: a compensation's fields come from the response, else from the request; never guessed at run time."""
    book = registered(definition()).steps[0]
    assert bindings(book.compensation) == {
        "booking_id": "step_response book booking_id",
        "nights": "step_request book nights",
        "guest": "step_response book guest",
        "reason": "step_request book reason",
        "card": "step_request book card",
        "invoice": "step_request book invoice",
    }
    assert bindings(book.lookup) == {"guest": "step_request book guest"}, "a lookup has no response to read"


def test_what_is_written_wins_over_names() -> None:
    """Promise: explicit bindings, literals and `default_value` are never overwritten by a name."""
    written = definition()
    call = written.steps[0].compensation
    call.method = f"{SERVICE}/Cancel"
    call.request.literals.type_url = f"{PACKAGE}.CancelRequest"
    call.request.literals.value = b"\x2a\x04card"
    call.request.bindings.add(target="guest").default_value.SetInParent()
    call.request.bindings.add(target="reason", input="guest")
    resolved = registered(written).steps[0].compensation
    assert bindings(resolved) == {
        "booking_id": "step_response book booking_id",
        "guest": "default_value",
        "nights": "step_request book nights",
        "reason": "input",
    }
    assert resolved.request.literals.type_url == f"type.googleapis.com/{PACKAGE}.CancelRequest"


def test_a_compensation_needs_the_response_only_if_it_reads_it() -> None:
    """Promise: a compensation is never called with an empty id, and one that finds its work by key always can be."""
    book = compiled().plan.steps[0]
    assert book.compensation is not None
    assert book.lookup is not None
    assert book.compensation.needs_response
    assert not book.lookup.needs_response
    written = definition()
    call = written.steps[0].compensation
    call.method, call.by_key = f"{SERVICE}/Cancel", True
    assert registered(written).steps[0].compensation.by_key


def test_resolving_is_idempotent() -> None:
    """Promise: registering what `GetSagaDefinition` answers is the same version again."""
    resolved = registered(definition())
    again = resolve(resolved)
    assert again == resolved
    written = pb.SagaDefinition()
    written.CopyFrom(definition())
    written.version = "0000000000000000"
    written.create_time.seconds = 7
    assert registered(written).version == resolved.version


def test_the_argument_is_not_changed() -> None:
    """Promise: resolving answers a copy."""
    written = definition()
    resolve(written, announced=[ANNOUNCED])
    assert written == definition()


def test_equal_content_has_one_version() -> None:
    """Promise: versions depend on content: not on who sent the types, nor how their files were made or ordered."""
    expected = registered(definition()).version
    sent = definition()
    sent.descriptors.CopyFrom(ANNOUNCED)
    for file in sent.descriptors.file:
        file.source_code_info.location.add(leading_comments="a comment")
        for message in file.message_type:
            for field in message.field:
                first, *rest = field.name.split("_")
                field.json_name = first + "".join(part.capitalize() for part in rest)
    sent.descriptors.file.add(name="not_needed.proto", package="elsewhere")
    files = list(sent.descriptors.file)
    del sent.descriptors.file[:]
    sent.descriptors.file.extend(reversed(files))
    assert resolve(sent).version == expected
    shuffled = definition()
    request = shuffled.steps[0].action.request
    order = list(request.bindings)
    del request.bindings[:]
    request.bindings.extend(reversed(order))
    assert registered(shuffled).version == expected


def test_options_that_others_defined_are_no_content() -> None:
    """F19: a definition as `definition get --json` shows it has the version that it had: JSON carries no options that
    it doesn't know, and whoever knows them writes them in another order.
    """
    http = b"\x82\xd3\xe4\x93\x02\x03\x22\x01/"  # option (google.api.http) = { post: "/" }
    behind, before = definition(), definition()
    for sent in (behind, before):
        sent.descriptors.CopyFrom(ANNOUNCED)
        (lodging,) = (file for file in sent.descriptors.file if file.service)
        for options in (lodging.service[0].method[0].options, lodging.message_type[0].field[0].options):
            said = options.SerializeToString()
            options.ParseFromString(said + http if sent is behind else http + said)
    resolved = resolve(behind)
    assert resolve(before).version == resolved.version
    shown = json_format.MessageToJson(resolved, descriptor_pool=pool_of(resolved))
    assert "[amends.v1.step]" in shown
    assert resolve(json_format.Parse(shown, pb.SagaDefinition())).version == resolved.version


@pytest.mark.parametrize(
    "change",
    [
        "timeout { seconds: 60 }",
        "compensation_failure_policy: COMPENSATION_FAILURE_POLICY_HALT",
        f'steps {{ name: "more" kind: STEP_KIND_READ_ONLY action {{ method: "{SERVICE}/Everything" }} }}',
    ],
)
def test_other_content_has_another_version(change: str) -> None:
    """Promise: running sagas keep their version, because other content never gets the same one."""
    assert registered(definition(TRIP + change)).version != registered(definition()).version


def test_another_type_is_another_version() -> None:
    """Promise: a participant's deploy changes no running saga: new types make a new version."""
    newer = FileDescriptorSet()
    newer.CopyFrom(ANNOUNCED)
    money = next(file for file in newer.file if file.name.endswith("money.proto"))
    money.message_type[0].field.add(name="exponent", number=9, type=5, label=1)
    assert resolve(definition(), announced=[newer]).version != registered(definition()).version


def test_only_the_needed_files_are_kept() -> None:
    """Promise: a stored definition carries all that it needs, dependencies first, and nothing else."""
    written = definition()
    written.descriptors.file.append(FileDescriptorProto(name="a/stranger.proto", package="stranger"))
    names = [file.name for file in registered(written).descriptors.file]
    assert "a/stranger.proto" not in names
    assert names.index("definitions_test/v1/money.proto") < names.index("definitions_test/v1/lodging.proto")
    assert set(names) == {file.name for file in ANNOUNCED.file}


def test_own_files_come_before_announced_ones() -> None:
    """Promise: what a definition carries is what it means; announced files only fill what is missing."""
    written = definition()
    own = FileDescriptorProto()
    own.CopyFrom(next(file for file in ANNOUNCED.file if file.name.endswith("money.proto")))
    own.message_type[0].field.add(name="exponent", number=9, type=5, label=1)
    written.descriptors.file.append(own)
    kept = {file.name: file for file in registered(written).descriptors.file}
    assert [field.name for field in kept[own.name].message_type[0].field] == ["units", "currency", "exponent"]


def test_files_that_make_no_schema_are_a_fault() -> None:
    """L2: descriptors may hold anything; whatever protobuf says of them becomes a fault with a path."""
    written = definition()
    written.descriptors.CopyFrom(ANNOUNCED)
    lodging = next(file for file in written.descriptors.file if file.name.endswith("lodging.proto"))
    lodging.message_type[0].field[0].number = 0
    lodging.dependency.append("missing.proto")
    twice = written.descriptors.file.add()
    twice.CopyFrom(lodging)
    twice.package = "other"
    with pytest.raises(InvalidDefinitionError) as caught:
        resolve(written)
    found = {fault.path: fault.description for fault in caught.value.faults}
    assert "is there twice with different content" in found[f"descriptors.file[{len(written.descriptors.file) - 1}]"]
    assert "file 'missing.proto', which 'definitions_test/v1/lodging.proto' imports," in found["input_type"]
    lodging.dependency.remove("missing.proto")
    with pytest.raises(InvalidDefinitionError, match="protobuf refuses file"):
        resolve(written)
