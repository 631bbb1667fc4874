"""What a compensation is told about who has its action, and who is called at all, over real gRPC."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from amends_coordinator.calls.unary import UnaryParticipants
from amends_coordinator.core.answer import Answer
from amends_coordinator.core.ids import Instant
from amends_coordinator.core.states import Outcome
from amends_coordinator.ports.ledger import InstanceRow
from amends_coordinator.ports.participants import CallRequest
from amends_coordinator.system import SystemClock
from tests.unit.calls.servers import compensation, listening

LEASE_END = Instant(2**60)


@dataclass(frozen=True, slots=True)
class Directory:
    """Names of the participants that serve everything, all at one address."""

    names: tuple[str, ...]
    address: str

    def serving(self, service: str) -> Sequence[str]:
        """See the port."""
        assert service == "bank.Desk"
        return self.names

    def may_serve(self, participant: str, service: str) -> bool:
        """See the port."""
        return participant in self.serving(service)

    def instances(self, *, service: str, participant: str) -> Sequence[InstanceRow]:
        """See the port."""
        return [
            InstanceRow(participant=name, instance_id="1", address=self.address, capacity=0, lease_end_time=LEASE_END)
            for name in self.serving(service)
            if participant == name
        ]


async def called(request: CallRequest, *names: str) -> tuple[Answer, list[dict[str, str | bytes]]]:
    """The answer to a call where these serve its method, and the metadata of what was sent."""
    heard: list[dict[str, str | bytes]] = []
    async with listening(heard) as address:
        participants = UnaryParticipants(
            directory=Directory(names, address),
            clock=SystemClock(),
            ledger_name="test",
            payload_limit_bytes=1 << 20,
            connect_gate_s=10,
        )
        answer = await participants.call(request)
        await participants.close()
    return answer, heard


@pytest.mark.parametrize(("has_it", "target"), [("bank-a", "same"), ("bank-b", "other"), ("", "other")])
async def test_a_compensation_is_told_whether_it_has_the_action(has_it: str, target: str) -> None:
    """S4: "nothing to undo" is said only by the participant that would know the action; others are told that they
    don't.
    """
    request = compensation(participant="bank-a", action_participant=has_it)
    answer, heard = await called(request, "bank-a", "bank-b")
    assert answer.outcome is Outcome.SUCCEEDED
    assert [call["amends-action-target"] for call in heard] == [target]


@pytest.mark.parametrize(
    ("names", "why"),
    [
        ((), "no participant announces bank.Desk just now; start one"),
        (("bank-a",), "no participant announces bank.Desk just now; start one"),
        (("bank-a", "bank-b"), "2 participants serve bank.Desk: bank-a, bank-b; name one in the step"),
    ],
    ids=["none", "one that came since", "two"],
)
async def test_nobody_is_called_who_was_not_chosen_before(names: tuple[str, ...], why: str) -> None:
    """S1, S2: what stands in no ledger is not called; a key goes to one participant, not to whoever is there."""
    answer, heard = await called(compensation(participant=""), *names)
    assert (answer.outcome, heard) == (Outcome.NOT_SENT, [])
    assert answer.message.startswith(why)
