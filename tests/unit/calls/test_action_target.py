"""What a compensation is told about who has its action, over real gRPC."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from amends_coordinator.calls.unary import UnaryParticipants
from amends_coordinator.core.ids import Instant
from amends_coordinator.core.states import Outcome
from amends_coordinator.ports.ledger import InstanceRow
from amends_coordinator.ports.participants import CallRequest
from amends_coordinator.system import SystemClock
from tests.unit.calls.servers import compensation, listening

LEASE_END = Instant(2**60)


@dataclass(frozen=True, slots=True)
class Directory:
    """Who serves what: names of participants by service, all at one address."""

    serving: dict[str, tuple[str, ...]]
    address: str

    def instances(self, *, service: str, participant: str) -> Sequence[InstanceRow]:
        """See the port."""
        return [
            InstanceRow(participant=name, instance_id="1", address=self.address, capacity=0, lease_end_time=LEASE_END)
            for name in self.serving.get(service, ())
            if participant in ("", name)
        ]


@pytest.mark.parametrize(
    ("of", "serving", "target"),
    [
        ("bank.Bank/Pay", {"bank.Desk": ("bank",)}, "other"),
        ("bank.Bank/Pay", {"bank.Desk": ("bank",), "bank.Bank": ("bank",)}, "same"),
        ("bank.Bank/Pay", {"bank.Desk": ("desk",), "bank.Bank": ("bank",)}, "other"),
        ("bank.Desk/Pay", {"bank.Desk": ("bank",)}, "same"),
    ],
    ids=["nobody knows", "one serves both", "another has it", "one service"],
)
async def test_a_compensation_is_told_whether_it_has_the_action(
    of: str, serving: dict[str, tuple[str, ...]], target: str
) -> None:
    """S4: "nothing to undo" is said only by the participant that would know the action; others are told that they
    don't.
    """
    assert await told(serving, compensation(of=of, by="bank.Desk/Refund")) == target


@pytest.mark.parametrize("serving", [("bank-a", "bank-b"), ("bank-b",)])
async def test_a_named_participant_has_the_action(serving: tuple[str, ...]) -> None:
    """S4: all calls of a step go to the participant that is named, whichever others serve its services."""
    request = compensation(of="bank.Bank/Pay", by="bank.Desk/Refund", participant="bank-b")
    assert await told({"bank.Desk": serving, "bank.Bank": ("bank-a",)}, request) == "same"


async def told(serving: dict[str, tuple[str, ...]], request: CallRequest) -> str | bytes:
    """What is told the participant that is called."""
    heard: list[dict[str, str | bytes]] = []
    async with listening(heard) as address:
        participants = UnaryParticipants(
            directory=Directory(serving, address),
            clock=SystemClock(),
            ledger_name="test",
            payload_limit_bytes=1 << 20,
            connect_gate_s=10,
        )
        answer = await participants.call(request)
        await participants.close()
    assert answer.outcome is Outcome.SUCCEEDED
    (call,) = heard
    return call["amends-action-target"]
