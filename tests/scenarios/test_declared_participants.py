"""Static participants of the participants' file: there at every start, and nobody's hindrance when they are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from acme.v1 import charges_pb2
from amends import Committed
from amends.v1 import registry_service_pb2 as pb
from amends_coordinator.settings import SettingsError
from scenario.v1.scenario_pb2 import ScenarioInput
from tests.scenarios.inside import Inside, inside
from tests.scenarios.test_third_party import BOUND, acme, charging
from tests.unit.grpc_api.samples import files_of
from tests.waiting import pause

pytestmark = pytest.mark.scenario


def declare(folder: Path, target: str, *more: str) -> str:
    """A file with one participant; its path."""
    file = folder / "participants.toml"
    file.write_text("\n".join(("[participants.acme]", f'target = "{target}"', *more)))
    return str(file)


async def targets(coordinator: Inside) -> dict[str, str]:
    """Where participants are."""
    listed = await coordinator.registry.ListParticipants(pb.ListParticipantsRequest())
    return {each.name: each.connection.target for each in listed.participants}


async def test_there_once_it_answers(tmp_path: Path) -> None:
    """L2: one that is down at the start keeps nobody from starting; asked again, it is there once it is up. At the next
    start it is known at once, and where the file says.
    """
    async with acme(tmp_path) as company:
        where = company.process.address
    async with inside(tmp_path, participants_file=declare(tmp_path, where)) as coordinator:
        assert await targets(coordinator) == {}
        await company.process.start()
        while await targets(coordinator) != {"acme": where}:
            await pause()
        handle = await coordinator.client.start(charging("paid", "good"), ScenarioInput(), saga_id="s")
        assert isinstance(await handle.wait(BOUND), Committed)
    await company.process.stop()
    async with inside(tmp_path, participants_file=declare(tmp_path, "127.0.0.1:1")) as coordinator:
        assert await targets(coordinator) == {"acme": "127.0.0.1:1"}


async def test_described_by_a_file_beside_it(tmp_path: Path) -> None:
    """Known from the first moment, whether it is up or not."""
    (tmp_path / "acme.binpb").write_bytes(files_of(charges_pb2.DESCRIPTOR).SerializeToString())
    file = declare(tmp_path, "127.0.0.1:1", 'descriptors = "acme.binpb"')
    async with inside(tmp_path, participants_file=file) as coordinator:
        assert await targets(coordinator) == {"acme": "127.0.0.1:1"}


async def test_a_file_with_faults(tmp_path: Path) -> None:
    """It is told at the start, and nothing starts."""
    with pytest.raises(SettingsError, match=r"\[participants.acme\] token_file: needs TLS"):
        async with inside(tmp_path, participants_file=declare(tmp_path, "a:1", 'token_file = "t"')):
            pass
