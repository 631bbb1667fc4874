"""The barred participant as a process of its own that stands still in its first commit, to be killed there:

python -m tests.conformance.barrier.process URL async|plain commits|committed FILE

It makes FILE when it stands still: before its commit is sent to the database, or after the database has confirmed it.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from pathlib import Path

from sqlalchemy import event
from sqlalchemy.orm import Session

from amends import ParticipantServer, barrier
from tests.conformance.barrier.stage import NO_COORDINATOR, Handlers, rig_at, write_effect
from timeline.v1 import timeline_pb2 as pb


async def serve(url: str, kind: str, point: str, reached: Path) -> None:
    """Serves until it is killed."""

    def stand_still(session: Session) -> None:
        reached.touch()
        threading.Event().wait()

    def body(session: Session) -> pb.DoResponse:
        if point == "commits":
            barrier.before_commit(stand_still)
        else:
            event.listen(session, "after_commit", stand_still)
        return write_effect(session)

    async with rig_at(url, plain=kind == "plain") as rig:
        server = ParticipantServer("barred", coordinator=NO_COORDINATOR)
        server.add(rig.servicer(Handlers(do=body)))
        await server.start()
        sys.stdout.write(f"listening on 127.0.0.1:{server.port}\n")
        sys.stdout.flush()
        await server.serve()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4])))
