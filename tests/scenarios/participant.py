"""The scripted participant as a process of its own: `python -m tests.scenarios.participant`."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

from amends import ParticipantServer
from tests.scenarios.journal import Journal
from tests.scenarios.steps import ScriptedSteps


async def serve(coordinator: str, port: int, data: Path) -> None:
    """Serve until SIGTERM; the journal and the script stand in `data`."""
    server = ParticipantServer("steps", coordinator=coordinator, port=port)
    server.add(ScriptedSteps(Journal(data / "journal.jsonl"), data / "script.json"))
    await server.start()
    print(f"listening on 127.0.0.1:{server.port}", flush=True)  # noqa: T201 - the parent waits for this line.
    await server.serve()


def main() -> None:
    """Read the arguments and serve."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--coordinator", required=True)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--data", type=Path, required=True)
    arguments = parser.parse_args()
    asyncio.run(serve(arguments.coordinator, arguments.port, arguments.data))


if __name__ == "__main__":
    main()
