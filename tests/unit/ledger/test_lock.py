"""One process per ledger, with real processes."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from amends_coordinator.core.ids import NodeId, SagaId
from amends_coordinator.ledger.sql import SqlLedger
from amends_coordinator.ports.ledger import LedgerLockedError
from tests.conformance.ledger.sagas import after, plan_of
from tests.unit.ledger.databases import dialect, make_file

HOLDER = """
import asyncio, sys
from pathlib import Path
from tests.conformance.ledger.sagas import new, saga
from tests.unit.ledger.databases import open_file

async def hold() -> None:
    ledger = await open_file(Path(sys.argv[1]))
    await ledger.start(new(saga("order-1")))
    print("holding", flush=True)
    await asyncio.Event().wait()

asyncio.run(hold())
"""


def start_holder(path: Path) -> subprocess.Popen[bytes]:
    """A process that opens the ledger and keeps it."""
    checkout = Path(__file__).resolve().parents[3]
    return subprocess.Popen([sys.executable, "-c", HOLDER, str(path)], cwd=checkout, stdout=subprocess.PIPE)


@pytest.mark.crash
async def test_a_second_process_is_refused_until_the_first_is_killed(tmp_path: Path) -> None:
    """S7, L1: the lock names its file and holder, and kill -9 frees it; the dead one's sagas are released at once."""
    path = make_file(tmp_path)
    holder = start_holder(path)
    try:
        assert holder.stdout is not None
        assert await asyncio.to_thread(holder.stdout.readline) == b"holding\n"
        ledger = SqlLedger(dialect(path))
        with pytest.raises(LedgerLockedError) as caught:
            await ledger.open(NodeId("node-2"), plans=plan_of)
        assert f"{path}.lock" in str(caught.value)
        assert f"process {holder.pid}" in str(caught.value)
        assert "Stop that process" in str(caught.value)
        holder.send_signal(signal.SIGKILL)
        await asyncio.to_thread(holder.wait)
        await ledger.open(NodeId("node-2"), plans=plan_of)
        (found,) = await ledger.claim(now=after(1), limit=5, held=frozenset())
        assert found.saga.id == SagaId("order-1")
        await ledger.close()
    finally:
        holder.kill()
        holder.communicate()
