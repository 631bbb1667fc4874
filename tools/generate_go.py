"""Generates the Go code of the participant in Go: of its own proto, and of the two of ours that it uses.

Runs like tools/generate.py in the environment that has protoc; the plugins are the `tool`s of its go.mod, so Go builds
them. Whether what is committed is fresh is told by a test, without Go's plugins: the descriptors that the running
participant announces are those of the protos.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
PARTICIPANT = CHECKOUT / "participants" / "go"
MODULE = "amends.example/points"
PACKAGES = {
    "amends/v1/annotations.proto": f"{MODULE}/gen/amends/v1;amendsv1",
    "amends/v1/registry_service.proto": f"{MODULE}/gen/amends/v1;amendsv1",
    "points/v1/points.proto": f"{MODULE}/gen/points/v1;pointsv1",
}
"""The Go package of each proto. Said here and not in the protos, where it would be every other team's, too."""


def main() -> int:
    """Generate; 0 if all is well."""
    arguments = [sys.executable, "-m", "grpc_tools.protoc", f"-I{CHECKOUT / 'proto'}", f"-I{CHECKOUT / 'participants'}"]
    for plugin in ("go", "go-grpc"):
        arguments += [f"--plugin=protoc-gen-{plugin}={built(f'protoc-gen-{plugin}')}", f"--{plugin}_out={PARTICIPANT}"]
        arguments += [f"--{plugin}_opt=M{proto}={package}" for proto, package in PACKAGES.items()]
        arguments += [f"--{plugin}_opt=module={MODULE}"]
    return subprocess.run([*arguments, *PACKAGES], check=False, stdin=subprocess.DEVNULL).returncode


def built(plugin: str) -> str:
    """Where Go has put a plugin that it has built."""
    command = ["go", "tool", "-n", plugin]
    return subprocess.run(command, cwd=PARTICIPANT, check=True, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
