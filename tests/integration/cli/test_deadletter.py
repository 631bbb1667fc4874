"""`amends deadletter list|retry|resolve` and `amends saga abort|run-now|terminate` against the public API."""

from __future__ import annotations

from pathlib import Path

import grpc
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message import Message
from typer.testing import CliRunner

from amends.cli import deadletter, saga_verbs
from amends.cli.app import app
from amends.v1.operator_service_pb2 import (
    DeadLetterGroup,
    ListDeadLettersRequest,
    ListDeadLettersResponse,
    ResolveDeadLetterRequest,
    RetryDeadLetterRequest,
    RunSagaNowRequest,
    TerminateSagaRequest,
)
from amends.v1.saga_pb2 import (
    DIRECTION_ACTION,
    RESOLUTION_DID_NOT_HAPPEN,
    RESOLUTION_HAPPENED,
    DeadLetter,
    Saga,
)
from amends.v1.saga_service_pb2 import AbortSagaRequest
from shop.shipping.v1.shipping_pb2 import DESCRIPTOR as SHIPPING
from shop.shipping.v1.shipping_pb2 import ShipResponse
from tests.integration.cli.api import SagaApi, refuse
from tests.unit.cli.sagas import at, stuck_saga

LETTER = "order-1043/authorize/compensation/1"
SHIP = "shop.shipping.v1.ShippingService/Ship"


@pytest.fixture(autouse=True)
def _ada(monkeypatch: pytest.MonkeyPatch) -> None:
    """The account that runs the commands."""
    for module in (deadletter, saga_verbs):
        monkeypatch.setattr(module, "login_name", lambda: "ada")


def test_dead_letters_are_counted_by_kind_and_listed(api: SagaApi, runner: CliRunner) -> None:
    """An operator sees "412 of PaymentsService/Void, UNAVAILABLE" first, then each one with its id."""
    (letter,) = stuck_saga().dead_letters
    letter.method, letter.last_status_code = "shop.payments.v1.PaymentsService/Void", "UNAVAILABLE"
    group = DeadLetterGroup(
        method=letter.method,
        reason=letter.reason,
        last_status_code="UNAVAILABLE",
        dead_letter_count=412,
        oldest_open_time=at(0),
    )
    whole = DeadLetterGroup(reason=DeadLetter.REASON_DRIVER_FAILED, dead_letter_count=1, oldest_open_time=at(0))
    api.dead_letters = ListDeadLettersResponse(dead_letters=[letter], groups=[group, whole], next_page_token="more")
    done = runner.invoke(app, ["deadletter", "list", "--limit", "1", "--coordinator", api.address])
    lines = done.stdout.splitlines()
    assert lines[0].startswith("  412 of PaymentsService/Void, UNAVAILABLE  BUDGET_SPENT  since 2026-")
    assert lines[1].startswith("    1 of whole sagas  DRIVER_FAILED  since 2026-")
    assert lines[3].split() == ["DEAD", "LETTER", "SAGA", "CALL", "REASON", "OPENED", "SAID"]
    assert lines[4].split()[:5] == [LETTER, "order-1043", "authorize", "compensation", "BUDGET_SPENT"]
    assert lines[4].endswith("UNAVAILABLE connection refused")
    assert done.stderr.startswith("these are the oldest 1; --limit shows more\nwhen you know what happened: `amends ")
    assert api.verbs == [ListDeadLettersRequest(page_size=1)]


def test_what_is_settled_asks_for_nothing(api: SagaApi, runner: CliRunner) -> None:
    """Only where something is open the list ends with what can be done about it."""
    (letter,) = stuck_saga().dead_letters
    letter.close_time.CopyFrom(at(0))
    api.dead_letters = ListDeadLettersResponse(dead_letters=[letter])
    done = runner.invoke(app, ["deadletter", "list", "--closed", "--coordinator", api.address])
    assert (done.exit_code, done.stderr) == (0, "")


def test_no_dead_letters(api: SagaApi, runner: CliRunner) -> None:
    """Nothing to do is said, and is no error."""
    done = runner.invoke(app, ["deadletter", "list", "--saga", "order-7", "--closed", "--coordinator", api.address])
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", "no dead letters\n")
    assert api.verbs == [ListDeadLettersRequest(saga_id="order-7", closed_too=True, page_size=50)]


@pytest.mark.parametrize(
    ("command", "request_sent", "said"),
    [
        (
            ["deadletter", "retry", LETTER, "--reason", "it is back", "--force"],
            RetryDeadLetterRequest(dead_letter_id=LETTER, reason="it is back", forced=True, claimed_actor="ada"),
            "closed: it is called again\nsaga order-1043 is COMPENSATING; see how it goes on with",
        ),
        (
            ["deadletter", "resolve", LETTER, "did-not-happen", "--reason", "their books"],
            ResolveDeadLetterRequest(
                dead_letter_id=LETTER,
                resolution=RESOLUTION_DID_NOT_HAPPEN,
                reason="their books",
                claimed_actor="ada",
            ),
            "closed: did not happen\nsaga order-1043 is COMPENSATING",
        ),
        (
            ["saga", "abort", "order-1043", "--reason", "left"],
            AbortSagaRequest(saga_id="order-1043", reason="left", claimed_actor="ada"),
            "saga order-1043: abort accepted; it is COMPENSATING",
        ),
        (
            ["saga", "run-now", "order-1043"],
            RunSagaNowRequest(saga_id="order-1043", claimed_actor="ada"),
            "due now; it is COMPENSATING\nwhat is left to decide: `amends deadletter list --saga order-1043`",
        ),
        (
            ["saga", "terminate", "order-1043", "--reason", "harm"],
            TerminateSagaRequest(saga_id="order-1043", reason="harm", claimed_actor="ada"),
            "terminated; it is COMPENSATING\nwhat is left to decide: `amends deadletter list --saga order-1043`",
        ),
    ],
)
def test_what_is_sent_and_said(
    api: SagaApi, runner: CliRunner, command: list[str], request_sent: Message, said: str
) -> None:
    """Every command sends who runs it and why, and says how the saga stands."""
    api.sagas["order-1043"] = stuck_saga()
    done = runner.invoke(app, [*command, "--coordinator", api.address])
    assert (done.exit_code, done.stderr) == (0, "")
    assert said in done.stdout
    assert api.verbs == [request_sent]


def test_run_now_says_what_only_a_person_moves(api: SagaApi, runner: CliRunner) -> None:
    """A saga that can't go on without a person isn't said to be due: what helps is said instead."""
    saga = stuck_saga()
    saga.state = saga.STATE_COMPENSATION_FAILED
    api.sagas["order-1043"] = saga
    done = runner.invoke(app, ["saga", "run-now", "order-1043", "--coordinator", api.address])
    assert (done.exit_code, done.stderr) == (0, "")
    assert "due now" not in done.stdout
    assert done.stdout.splitlines() == [
        "saga order-1043: nothing of it waits to be tried again, only for a person; it is COMPENSATION_FAILED",
        "what is left to decide: `amends deadletter list --saga order-1043`",
    ]


def parked_ship(api: SagaApi) -> str:
    """A saga whose step "ship" is parked, and whose definition carries the method's types; the dead letter's id."""
    file = FileDescriptorProto()
    SHIPPING.CopyToProto(file)
    api.definitions["order"].descriptors.file.append(file)
    letter = DeadLetter(dead_letter_id="order-8/ship/action/1", step="ship", direction=DIRECTION_ACTION, method=SHIP)
    api.sagas["order-8"] = Saga(saga_id="order-8", definition_name="order", dead_letters=[letter])
    return letter.dead_letter_id


def test_a_response_is_sent_in_the_methods_type(api: SagaApi, runner: CliRunner, tmp_path: Path) -> None:
    """JSON becomes the response of the parked action, by the saga's own definition."""
    letter = parked_ship(api)
    (tmp_path / "response.json").write_text('{"shipmentId": "s-9"}')
    command = ["deadletter", "resolve", letter, "happened", "--reason", "asked them", "--coordinator", api.address]
    done = runner.invoke(app, [*command, "--response", f"@{tmp_path / 'response.json'}"])
    assert (done.exit_code, done.stderr) == (0, "")
    (request,) = api.verbs
    assert isinstance(request, ResolveDeadLetterRequest)
    sent = ShipResponse()
    assert request.response.Unpack(sent)
    assert (sent.shipment_id, request.resolution) == ("s-9", RESOLUTION_HAPPENED)
    wrong = runner.invoke(app, [*command, "--response", '{"shipment": 1}'])
    assert wrong.exit_code == 1
    assert wrong.stderr.startswith("--response: shipment is no field of shop.shipping.v1.ShipResponse.\nIt has: ")
    missing = runner.invoke(app, ["deadletter", "resolve", "order-8/x/action/1", *command[3:], "--response", "{}"])
    assert missing.stderr == (
        "saga order-8 has no dead letter order-8/x/action/1.\n`amends deadletter list` shows those there are.\n"
    )


def test_a_refusal_is_a_sentence_with_what_to_do(api: SagaApi, runner: CliRunner) -> None:
    """Errors say what went wrong and what to do now, without a traceback."""
    api.refusals["RetryDeadLetter"] = lambda context: refuse(
        context, grpc.StatusCode.FAILED_PRECONDITION, "KEY_EXPIRED", "the participant may have forgotten the key"
    )
    done = runner.invoke(app, ["deadletter", "retry", LETTER, "--reason", "again", "--coordinator", api.address])
    assert done.exit_code == 1
    assert done.stderr.splitlines() == [
        f"the coordinator at {api.address} refused: the participant may have forgotten the key (KEY_EXPIRED)",
        "Find out what became of it, then `amends deadletter resolve`; --force calls it all the same.",
    ]


def test_a_reason_is_asked_for(runner: CliRunner) -> None:
    """Nothing is done to a saga without saying why."""
    done = runner.invoke(app, ["deadletter", "retry", LETTER])
    assert done.exit_code == 2
    assert "--reason" in done.stderr
