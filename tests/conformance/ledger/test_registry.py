"""Definitions and participants."""

from __future__ import annotations

from dataclasses import replace

from amends_coordinator.core.definition import StoredDefinition
from amends_coordinator.core.ids import DefinitionVersion, Instant
from amends_coordinator.ports.ledger import InstanceRow, Ledger, ParticipantRow
from tests.conformance.ledger.sagas import DEFINITION, after

SHOP = ParticipantRow(
    name="shop",
    services=("shop.v1.ShopService", "shop.v1.StockService"),
    descriptors=b"\x00descriptors",
    created_time=after(1),
    updated_time=after(1),
)
FIRST = InstanceRow(
    participant="shop", instance_id="a", address="127.0.0.1:7101", capacity=16, lease_end_time=after(100)
)


async def test_a_definition_is_stored_once(ledger: Ledger) -> None:
    """Registering known content again moves nothing: the stored one is answered."""
    again = replace(DEFINITION, content=b"other", created_time=after(99))
    assert await ledger.put_definition(again) == DEFINITION
    assert await ledger.get_definition("order", DEFINITION.version) == DEFINITION


async def test_the_newest_definition_of_a_name(ledger: Ledger) -> None:
    """Without a version the newest created counts, whatever its version is called."""
    newer = replace(DEFINITION, version=DefinitionVersion("00aa"), content=b"newer", created_time=after(5))
    await ledger.put_definition(newer)
    await ledger.put_definition(replace(newer, name="other", created_time=after(9)))
    assert await ledger.get_definition("order", None) == newer
    assert await ledger.get_definition("order", DEFINITION.version) == DEFINITION


async def test_the_version_that_was_stored_last_is_the_newest(ledger: Ledger) -> None:
    """F19: also where its clock went back, or stood still: new sagas begin with what was registered last."""
    stored = DEFINITION
    for number, time in enumerate((after(-5), after(0), after(-9))):
        later = replace(DEFINITION, version=DefinitionVersion(f"{9 - number:016x}"), created_time=time)
        stored = await ledger.put_definition(later)
        assert stored.version == later.version
        assert await ledger.get_definition("order", None) == stored
    assert await ledger.put_definition(DEFINITION) == DEFINITION
    assert await ledger.get_definition("order", None) == stored


async def test_unknown_definitions(ledger: Ledger) -> None:
    """What isn't there is None."""
    assert await ledger.get_definition("nothing", None) is None
    assert await ledger.get_definition("order", DefinitionVersion("ffff")) is None


async def test_definitions_in_pages(ledger: Ledger) -> None:
    """Every version of every name is on exactly one page, newest first, also where some came at one instant."""
    stored = [DEFINITION]
    for number in range(7):
        version = DefinitionVersion(f"{number:016x}")
        stored.append(
            replace(DEFINITION, name=f"saga-{number % 3}", version=version, created_time=after(1 + number // 2))
        )
        await ledger.put_definition(stored[-1])
    found: list[StoredDefinition] = []
    before: tuple[Instant, str, DefinitionVersion] | None = None
    sizes: list[int] = []
    while not sizes or before is not None:
        page = await ledger.list_definitions(limit=3, before=before)
        found += page.definitions
        sizes.append(len(page.definitions))
        before = page.next
    assert sizes == [3, 3, 2]
    assert {(each.name, each.version): each for each in found} == {(each.name, each.version): each for each in stored}
    assert [each.created_time for each in found] == sorted((each.created_time for each in stored), reverse=True)


async def test_the_last_page_of_definitions_is_known_as_the_last(ledger: Ledger) -> None:
    """No empty page follows one that happens to be full."""
    page = await ledger.list_definitions(limit=1, before=None)
    assert (page.definitions, page.next) == ((DEFINITION,), None)


async def test_participants_and_their_instances(ledger: Ledger) -> None:
    """Announcing again replaces and renews; the time of the first announcement stays."""
    await ledger.put_participant(SHOP, FIRST)
    await ledger.put_participant(replace(SHOP, name="bank"), replace(FIRST, participant="bank"))
    changed = replace(
        SHOP, services=("shop.v2.ShopService",), descriptors=b"2", created_time=after(7), updated_time=after(7)
    )
    second = replace(FIRST, instance_id="b", address="127.0.0.1:7102", capacity=0)
    renewed = replace(FIRST, lease_end_time=after(200), address="127.0.0.1:7103")
    await ledger.put_participant(changed, second)
    await ledger.put_participant(changed, renewed)
    participants, instances = await ledger.participants()
    assert list(participants) == [replace(SHOP, name="bank"), replace(changed, created_time=after(1))]
    assert list(instances) == [replace(FIRST, participant="bank"), renewed, second]


async def test_an_instance_is_removed(ledger: Ledger) -> None:
    """A process that left is gone, the participant stays; removing it again is harmless."""
    await ledger.put_participant(SHOP, FIRST)
    await ledger.remove_instance("shop", "a")
    await ledger.remove_instance("shop", "a")
    participants, instances = await ledger.participants()
    assert (list(participants), list(instances)) == ([SHOP], [])


async def test_a_participant_that_became_static_has_no_instances(ledger: Ledger) -> None:
    """How it is reached is stored, and changed; what it announced of itself before is forgotten."""
    static = replace(SHOP, updated_time=after(9), connection=b"\x00how")
    await ledger.put_participant(SHOP, FIRST)
    await ledger.put_participant(replace(static, connection=b"otherwise"), None)
    await ledger.put_participant(static, None)
    participants, instances = await ledger.participants()
    assert (list(participants), list(instances)) == ([static], [])


async def test_a_participant_is_removed_with_its_instances(ledger: Ledger) -> None:
    """Others stay; removing it again is harmless."""
    bank = replace(SHOP, name="bank")
    await ledger.put_participant(SHOP, FIRST)
    await ledger.put_participant(bank, replace(FIRST, participant="bank"))
    await ledger.remove_participant("shop")
    await ledger.remove_participant("shop")
    participants, instances = await ledger.participants()
    assert (list(participants), list(instances)) == ([bank], [replace(FIRST, participant="bank")])
