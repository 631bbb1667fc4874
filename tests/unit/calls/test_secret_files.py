"""Files of TLS that are not what they should be: a sentence that names them, and nothing of what is in them."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from amends_coordinator.calls.reflection import Reflection
from amends_coordinator.calls.secrets import SecretError, Secrets
from amends_coordinator.calls.static_channels import check_files
from amends_coordinator.ports.connections import StaticConnection, TlsOptions
from tests.scenarios.certificates import Authority


def faults_of(folder: Path, tls: TlsOptions, *, token_file: str = "") -> dict[str, str]:
    """What keeps a connection from being used."""
    asking = Reflection(secrets=Secrets(str(folder)), payload_limit_bytes=1_024)
    return dict(asking.faults(StaticConnection(target="a:1", tls=tls, token_file=token_file)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of secrets with good certificates, a stranger's key, a key with a password, and a token."""
    secrets = tmp_path_factory.mktemp("secrets")
    authority = Authority(secrets)
    authority.issue("shop")
    authority.issue("stranger")
    locked = ("ec", "-in", "shop.key", "-aes128", "-passout", "pass:s3cret", "-out", "locked.key")
    subprocess.run(["openssl", *locked], cwd=secrets, check=True, capture_output=True, timeout=30)
    (secrets / "token").write_text("s3cret")
    (secrets / "folder").mkdir()
    return secrets


def test_what_fits_has_no_faults(folder: Path) -> None:
    """Good files, and none at all."""
    whole = TlsOptions(ca_file="ca.pem", client_certificate_file="shop.pem", client_key_file="shop.key")
    assert faults_of(folder, whole, token_file="token") == {}
    assert faults_of(folder, TlsOptions()) == {}


@pytest.mark.parametrize(
    ("tls", "said"),
    [
        (TlsOptions(ca_file="shop.key"), "shop.key in the directory of secrets holds no certificates"),
        (TlsOptions(client_certificate_file="shop.pem", client_key_file="stranger.key"), "shop.pem and stranger.key"),
        (TlsOptions(client_certificate_file="shop.pem", client_key_file="locked.key"), "without a password"),
        (TlsOptions(client_certificate_file="token", client_key_file="token"), "token and token"),
    ],
)
def test_what_does_not_fit_is_told(folder: Path, tls: TlsOptions, said: str) -> None:
    """gRPC itself would say no more than that it can't connect."""
    faults = faults_of(folder, tls)
    assert list(faults) == ["tls"]
    assert said in faults["tls"]
    assert "s3cret" not in faults["tls"]


def test_words_in_any_language_may_stand_between_certificates(folder: Path) -> None:
    """Lists of authorities name them as they name themselves; what is no list is told, whatever its letters."""
    (folder / "named.pem").write_bytes("Főtanúsítvány\n=====\n".encode() + (folder / "ca.pem").read_bytes())
    (folder / "words.pem").write_bytes("Főtanúsítvány\n".encode())
    assert faults_of(folder, TlsOptions(ca_file="named.pem")) == {}
    assert list(faults_of(folder, TlsOptions(ca_file="words.pem"))) == ["tls"]


def test_a_long_list_of_authorities_is_not_read_with_every_call(folder: Path) -> None:
    """L2: it takes a tenth of a second on the event loop, and every attempt asks several times what is at fault."""
    secrets = Secrets(str(folder))
    (folder / "long.pem").write_bytes((folder / "ca.pem").read_bytes() * 1_000)
    unfit = TlsOptions(ca_file="long.pem", client_certificate_file="shop.pem", client_key_file="stranger.key")
    times_s: list[float] = []
    for _ in range(10):
        began_s = time.perf_counter()
        with pytest.raises(SecretError, match="are no certificate chain"):
            check_files(unfit, secrets)
        times_s.append(time.perf_counter() - began_s)
    first_s, *others_s = times_s
    assert sorted(others_s)[len(others_s) // 2] < first_s / 2


def test_no_file(folder: Path) -> None:
    """A folder is none."""
    assert faults_of(folder, TlsOptions(ca_file="folder")) == {
        "tls.ca_file": "folder in the directory of secrets is no file; name a file"
    }
