"""Runs grpcurl and `buf curl` as people do."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

COMMAND_BOUND_S = 60.0
BUF = Path(sys.executable).parent / "buf"


async def run(program: Path, *arguments: str) -> str:
    """What a program prints, errors included."""
    process = await asyncio.create_subprocess_exec(
        program, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    try:
        said, _ = await asyncio.wait_for(process.communicate(), COMMAND_BOUND_S)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return said.decode()


async def by_grpcurl(program: Path, address: str, method: str, **request: object) -> Any:  # Any: JSON
    """The answer to a request, as grpcurl prints it."""
    return parsed(await run(program, "-plaintext", "-d", json.dumps(request), address, f"amends.v1.{method}"))


async def by_buf(address: str, method: str, **request: object) -> Any:  # Any: JSON
    """The answer to a request, as `buf curl` prints it."""
    url = f"http://{address}/amends.v1.{method}"
    return parsed(await run(BUF, "curl", *_AS_GRPC, "--reflect", "-d", json.dumps(request), url))


async def methods_by_buf(address: str) -> set[str]:
    """The methods that `buf curl` finds."""
    return set((await run(BUF, "curl", *_AS_GRPC, "--list-methods", f"http://{address}")).split())


def parsed(said: str) -> Any:  # Any: JSON
    """What was printed, as JSON; a refusal or a complaint fails the test with its text."""
    try:
        return json.loads(said)
    except ValueError as error:
        raise AssertionError(said) from error


_AS_GRPC = ("--protocol", "grpc", "--http2-prior-knowledge")
