"""`OperatorService` and `AbortSaga` over real gRPC: what is malformed, who asked, lists page by page."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import grpc
import pytest
from google.protobuf.any_pb2 import Any as AnyMessage

from amends.v1 import operator_service_pb2 as pb
from amends.v1 import saga_pb2
from amends.v1.saga_service_pb2 import AbortSagaRequest
from amends_coordinator.core.ids import SagaId
from amends_coordinator.core.states import DeadLetterReason
from amends_coordinator.ports.ledger import LedgerUnavailableError, UnreadableSagaError
from tests.integration.api.conftest import PAYLOAD_LIMIT_BYTES, start_request
from tests.integration.api.refusals import refused

if TYPE_CHECKING:
    from tests.integration.api.conftest import Served

Code = grpc.StatusCode


async def failing(served: Served, saga_id: str = "s-1") -> str:
    """A saga with an open dead letter; its id."""
    await served.register()
    await served.sagas.StartSaga(start_request(saga_id))
    found = await served.ledger.put_dead_letter(
        SagaId(saga_id), reason=DeadLetterReason.DRIVER_FAILED, last_error="boom", now=served.clock.now()
    )
    assert found is not None
    return found


async def test_every_malformed_field_is_named(served: Served) -> None:
    """Malformed requests are refused with every field's path; nothing is looked up."""
    long, huge = "x" * 600, AnyMessage(type_url="a.b/c.D", value=bytes(PAYLOAD_LIMIT_BYTES + 1))
    resolving = pb.ResolveDeadLetterRequest(dead_letter_id="x" * 300, reason=long, claimed_actor=long, response=huge)
    refusal = await refused(served.operator.ResolveDeadLetter(resolving))
    assert (refusal.code, refusal.reason) == (Code.INVALID_ARGUMENT, "INVALID_REQUEST")
    assert set(refusal.paths) == {"dead_letter_id", "resolution", "response", "reason", "claimed_actor"}
    retrying = await refused(served.operator.RetryDeadLetter(pb.RetryDeadLetterRequest(reason="  ")))
    assert set(retrying.paths) == {"dead_letter_id", "reason"}
    terminating = await refused(served.operator.TerminateSaga(pb.TerminateSagaRequest(saga_id="a b")))
    assert set(terminating.paths) == {"saga_id", "reason"}
    unknown = [cast("saga_pb2.DeadLetter.Reason.ValueType", number) for number in (0, 99)]
    listing = pb.ListDeadLettersRequest(saga_id="a b", page_size=-1, page_token="%", reasons=unknown, method="\0")
    assert set((await refused(served.operator.ListDeadLetters(listing))).paths) == {
        "saga_id",
        "page_size",
        "page_token",
        "reasons[0]",
        "reasons[1]",
        "method",
    }
    aborting = await refused(served.sagas.AbortSaga(AbortSagaRequest(saga_id="s", reason=long)))
    assert aborting.paths == ("reason",)


async def test_who_asked_is_kept(served: Served) -> None:
    """The audit has where the request came from, and beside it who it says it is: its field, else its metadata."""
    letter = await failing(served)
    metadata = (("amends-actor", "ada"),)
    await served.operator.RetryDeadLetter(
        pb.RetryDeadLetterRequest(dead_letter_id=letter, reason="again"), metadata=metadata
    )
    await served.operator.RunSagaNow(pb.RunSagaNowRequest(saga_id="s-1", claimed_actor="bob"), metadata=metadata)
    await served.sagas.AbortSaga(AbortSagaRequest(saga_id="s-1"))
    assert served.nudged == ["s-1"] * 3
    answer = await served.operator.ListAuditEntries(pb.ListAuditEntriesRequest(saga_id="s-1"))
    assert {(entry.verb, entry.claimed_actor) for entry in answer.audit_entries} == {
        ("RetryDeadLetter", "ada"),
        ("RunSagaNow", "bob"),
        ("AbortSaga", ""),
    }
    assert all(entry.actor.startswith("unauthenticated:ipv4:127.0.0.1:") for entry in answer.audit_entries)
    retried = next(entry for entry in answer.audit_entries if entry.verb == "RetryDeadLetter")
    assert (retried.dead_letter_id, retried.details_json) == (letter, '{"forced": false}')


async def test_lists_come_page_by_page(served: Served) -> None:
    """Dead letters oldest first, the counts with the first page; the audit newest first."""
    letters: list[str] = []
    for number in range(3):
        letters.append(await failing(served, f"s-{number}"))
        await served.operator.RunSagaNow(pb.RunSagaNowRequest(saga_id=f"s-{number}"))
        served.clock.advance(1)
    first = await served.operator.ListDeadLetters(pb.ListDeadLettersRequest(page_size=2))
    second = await served.operator.ListDeadLetters(
        pb.ListDeadLettersRequest(page_size=2, page_token=first.next_page_token)
    )
    assert [each.dead_letter_id for each in (*first.dead_letters, *second.dead_letters)] == letters
    assert [group.dead_letter_count for group in first.groups] == [3]
    assert not second.groups
    assert not second.next_page_token
    newest = await served.operator.ListAuditEntries(pb.ListAuditEntriesRequest(page_size=2))
    rest = await served.operator.ListAuditEntries(
        pb.ListAuditEntriesRequest(page_size=2, page_token=newest.next_page_token)
    )
    assert [each.saga_id for each in (*newest.audit_entries, *rest.audit_entries)] == ["s-2", "s-1", "s-0"]


async def test_what_the_coordinator_failed_on_can_only_be_retried(served: Served) -> None:
    """A dead letter of the whole saga is retried; there is nothing that a person could have found."""
    letter = await failing(served)
    resolving = pb.ResolveDeadLetterRequest(
        dead_letter_id=letter, resolution=saga_pb2.RESOLUTION_HAPPENED, reason="I think so"
    )
    refusal = await refused(served.operator.ResolveDeadLetter(resolving))
    assert (refusal.code, refusal.reason) == (Code.FAILED_PRECONDITION, "RESOLUTION_REFUSED")
    resolving.response.CopyFrom(AnyMessage(type_url="type.googleapis.com/scenario.v1.DoResponse"))
    assert (await refused(served.operator.ResolveDeadLetter(resolving))).paths == ("response",)
    retrying = pb.RetryDeadLetterRequest(dead_letter_id=letter, reason="mended")
    answer = await served.operator.RetryDeadLetter(retrying)
    assert not answer.saga.attention_required


@pytest.mark.parametrize(
    ("fault", "code", "reason"),
    [
        (LedgerUnavailableError, Code.UNAVAILABLE, "LEDGER_UNAVAILABLE"),
        (UnreadableSagaError, Code.DATA_LOSS, "SAGA_UNREADABLE"),
        (ZeroDivisionError, Code.INTERNAL, "COORDINATOR_FAULT"),
    ],
)
async def test_faults_tell_nothing_of_the_inside(
    served: Served, fault: type[Exception], code: Code, reason: str
) -> None:
    """Errors carry their reason; no driver's text leaves."""
    letter = await failing(served)
    served.ledger.fault = fault("secret")
    refusal = await refused(
        served.operator.RetryDeadLetter(pb.RetryDeadLetterRequest(dead_letter_id=letter, reason="again"))
    )
    assert (refusal.code, refusal.reason) == (code, reason)
    assert "secret" not in refusal.message
    served.ledger.fault = None
