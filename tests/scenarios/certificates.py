"""Certificates for one test, made by the `openssl` command; where there is none the test says so and is skipped."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

HOST = "acme.example"
NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def _openssl(*arguments: str, folder: Path) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True, timeout=30)


class Authority:
    """A certificate authority in a folder of its own: `ca.pem`."""

    def __init__(self, folder: Path) -> None:
        if shutil.which("openssl") is None:
            pytest.skip("no openssl command here to make certificates with")
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.certificate = folder / "ca.pem"
        name = f"/CN=authority {folder.name}"
        _openssl(
            *("req", "-x509", *NEW_KEY, "-keyout", "ca.key", "-out", "ca.pem", "-days", "2", "-subj", name),
            folder=folder,
        )

    def issue(self, name: str) -> tuple[Path, Path]:
        """A certificate for `HOST` and its key, in files that begin with this name."""
        (self.folder / "names").write_text(f"subjectAltName=DNS:{HOST}\n")
        request, certificate, key = f"{name}.csr", f"{name}.pem", f"{name}.key"
        _openssl("req", *NEW_KEY, "-keyout", key, "-out", request, "-subj", f"/CN={name}", folder=self.folder)
        _openssl(
            *("x509", "-req", "-in", request, "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial"),
            *("-out", certificate, "-days", "2", "-extfile", "names"),
            folder=self.folder,
        )
        return self.folder / certificate, self.folder / key
