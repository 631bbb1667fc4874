"""Reads secrets (certificates, keys, tokens) from their directory, by plain name, anew when they change.

What is in a file stands in no error and no log line: only the file's name and what is the matter with it.
"""

from __future__ import annotations

import re
import stat
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from amends_coordinator.ports.connections import SECRET_NAME

if TYPE_CHECKING:
    from collections.abc import Callable

LARGEST_BYTES = 1 << 20
TRUSTED_FOR_S = 1.0
"""How long a file isn't looked at again, so that a call costs no look at the disk."""

TOKEN = re.compile(rb"[\x21-\x7e]{1,8192}")


class SecretError(Exception):
    """A secret can't be had. The message names the file and says what to do; it never has anything of its content."""


@dataclass(slots=True)
class _Known:
    """A file as it was read, and when it was last looked at."""

    stamp: tuple[int, int, int]
    content: bytes = field(repr=False)
    looked_s: float


class Secrets:
    """The files of one directory ("": there is none). Blocks on the disk, for one look at a file a second at most.

    Args:
        directory: where the files are.
        monotonic_s: a clock that never goes back, in seconds.
    """

    def __init__(self, directory: str, *, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._directory = directory
        self._monotonic_s = monotonic_s
        self._known: dict[str, _Known] = {}

    def content(self, name: str) -> bytes:
        """What is in a file now; the same object for as long as it doesn't change.

        Raises:
            SecretError: there is no such file, or it can't be read.
        """
        now_s = self._monotonic_s()
        known = self._known.get(name)
        if known is not None and now_s - known.looked_s < TRUSTED_FOR_S:
            return known.content
        path = self.path(name)
        try:
            found = path.stat()
            stamp = (found.st_mtime_ns, found.st_size, found.st_ino)
            if known is None or known.stamp != stamp:
                known = _Known(stamp, _content(path, name, found.st_mode, found.st_size), now_s)
        except OSError as error:
            self._known.pop(name, None)
            raise SecretError(
                f"the coordinator can't read {name} in its directory of secrets ({error.strerror}); put it there, "
                "readable for the coordinator's user"
            ) from error
        known.looked_s = now_s
        self._known[name] = known
        return known.content

    def token(self, name: str) -> str:
        """The token in a file, without the white space around it. Raises as `content` does, and if it is none."""
        token = self.content(name).strip()
        if not TOKEN.fullmatch(token):
            raise SecretError(f"{name} in the directory of secrets holds no token: one line of printable ASCII")
        return token.decode("ascii")

    def path(self, name: str) -> Path:
        """Where a file is.

        Raises:
            SecretError: there is no directory, or the name is a path.
        """
        if not self._directory:
            raise SecretError(
                f"the coordinator has no directory of secrets to read {name} from; start it with AMENDS_SECRETS_DIR"
            )
        if not SECRET_NAME.fullmatch(name):
            raise SecretError("a secret is named by its plain file name, without any folder")
        return Path(self._directory) / name


def _content(path: Path, name: str, mode: int, size: int) -> bytes:
    if not stat.S_ISREG(mode):
        raise SecretError(f"{name} in the directory of secrets is no file; name a file")
    if size > LARGEST_BYTES:
        raise SecretError(f"{name} in the directory of secrets has {size} bytes; at most {LARGEST_BYTES} are read")
    with path.open("rb") as file:
        return file.read(LARGEST_BYTES)
