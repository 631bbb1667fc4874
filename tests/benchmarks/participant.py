"""A participant that does nothing, as a process: `python -m tests.benchmarks.participant NAME --coordinator
ADDRESS`.
"""

from __future__ import annotations

import argparse
import asyncio
from typing import Any, TypeAlias

import grpc

from amends import ParticipantServer
from scenario.v1.scenario_pb2 import DoRequest, DoResponse, UndoRequest, UndoResponse
from scenario.v1.scenario_pb2_grpc import StepServiceServicer

Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]  # their messages are not read through it


class Nothing(StepServiceServicer):
    """Answers at once."""

    async def Do(self, request: DoRequest, context: Context) -> DoResponse:
        """Do nothing."""
        return DoResponse(effect_id="effect", name=request.name)

    async def Undo(self, request: UndoRequest, context: Context) -> UndoResponse:
        """Undo nothing."""
        return UndoResponse()

    async def Find(self, request: object, context: Context) -> Any:
        """Not used."""
        raise AssertionError("the benchmark looks nothing up")

    async def DoFindable(self, request: object, context: Context) -> Any:
        """Not used."""
        raise AssertionError("the benchmark looks nothing up")


async def serve(name: str, coordinator: str) -> None:
    """Serve until SIGTERM."""
    server = ParticipantServer(name, coordinator=coordinator)
    server.add(Nothing())
    await server.start()
    print(f"listening on 127.0.0.1:{server.port}", flush=True)
    await server.serve()


def main() -> None:
    """Read the arguments and serve."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name")
    parser.add_argument("--coordinator", required=True)
    arguments = parser.parse_args()
    asyncio.run(serve(arguments.name, arguments.coordinator))


if __name__ == "__main__":
    main()
