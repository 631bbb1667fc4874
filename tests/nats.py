"""A real NATS server for tests, with JetStream, on a free loopback port; its streams are in a temporary folder.

It is the binary `nats-server` on the PATH, or the one that `make nats-server` builds in the checkout.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

from tests.waiting import eventually_blocking

BUILT = Path(__file__).parents[1] / ".tools" / "bin" / "nats-server"
NOT_TESTED = "NATS JetStream was not tested: there is no nats-server; `make nats-server` builds one where Go is"
STOP_BOUND_S = 10


def find_server() -> Path | None:
    """The binary, or None where there is none."""
    found = shutil.which("nats-server")
    if found is not None:
        return Path(found)
    return BUILT if BUILT.exists() else None


class NatsServer:
    """One server with its streams: made, it runs.

    Args:
        binary: what `find_server` found.
        folder: empty; for its streams.
    """

    def __init__(self, binary: Path, folder: Path) -> None:
        self._binary, self._folder = binary, folder
        self._process: subprocess.Popen[bytes] | None = None
        self._port = -1  # any
        self.start()

    @property
    def url(self) -> str:
        """Where it listens, also after it was started again."""
        return f"nats://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Start the server, on the port that it had before, and wait until it takes connections."""
        places = ["-a", "127.0.0.1", "-p", str(self._port), "--ports_file_dir", str(self._folder)]
        with (self._folder / "said.log").open("ab") as said:
            self._process = subprocess.Popen(
                [str(self._binary), "-js", "-sd", str(self._folder / "streams"), *places],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
            )
        ports = self._folder / f"{self._binary.name}_{self._process.pid}.ports"
        eventually_blocking(lambda: _complete(ports) or not self._runs, what="the server listens")
        assert self._runs, (self._folder / "said.log").read_text()
        address: str = json.loads(ports.read_text())["nats"][0]
        self._port = int(address.rpartition(":")[2])

    def kill(self) -> None:
        """End the server as a crash does; what it has stored stays."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(STOP_BOUND_S)

    @property
    def _runs(self) -> bool:
        return self._process is not None and self._process.poll() is None


def _complete(ports: Path) -> bool:
    try:
        return bool(json.loads(ports.read_text()))
    except (FileNotFoundError, json.JSONDecodeError):
        return False
