"""How a static participant is reached: one that knows nothing of us and doesn't announce itself."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

SECRET_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,254}")
"""What a file with a secret may be called: no path, and nothing hidden. So whoever may register a participant can't
have any other file read.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsOptions:
    """How TLS is spoken. Files are plain names in the directory of secrets; "" where there is none.

    `ca_file` holds the authorities that are trusted ("": gRPC's own list), `client_certificate_file` and
    `client_key_file` what the coordinator shows of itself, `server_name` whom the participant's certificate has to be
    for ("": the target's host).
    """

    ca_file: str = ""
    client_certificate_file: str = ""
    client_key_file: str = ""
    server_name: str = ""

    def files(self) -> tuple[str, str, str]:
        """The three files' names, in a fixed order."""
        return (self.ca_file, self.client_certificate_file, self.client_key_file)


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticConnection:
    """How one static participant is reached.

    `target` is a gRPC target; `tls` None: none is spoken; `headers` go with every call, sorted by key; `token_file`
    names a file in the directory of secrets whose token goes with every call; `capacity` is how many calls the
    participant takes at once, 0: as many as come.
    """

    target: str
    tls: TlsOptions | None = None
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    token_file: str = ""
    capacity: int = 0
