"""The participants' file: what it declares, and a sentence for each thing that is wrong with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from acme.v1 import charges_pb2
from amends_coordinator.participants_file import read_participants
from amends_coordinator.ports.connections import StaticConnection, TlsOptions
from amends_coordinator.settings import SettingsError
from tests.unit.grpc_api.samples import files_of

LIMIT_BYTES = 32_768
WHOLE = """
[participants.bank]
target = "dns:///bank.example:443"
descriptors = "bank.binpb"
services = ["acme.v1.ChargeService"]
headers = { x-b = "2", x-a = "1" }
token_file = "bank-token"
capacity = 16
tls = { ca_file = "ca.pem", client_certificate_file = "me.pem", client_key_file = "me.key", server_name = "bank" }

[participants.post]
target = "127.0.0.1:7300"
"""


def faults_of(folder: Path, text: str) -> list[str]:
    """The sentences about a file, without its name in front."""
    file = folder / "participants.toml"
    file.write_text(text)
    with pytest.raises(SettingsError) as caught:
        read_participants(str(file), payload_limit_bytes=LIMIT_BYTES)
    assert all(sentence.startswith(str(file)) and sentence.endswith(".") for sentence in caught.value.faults)
    return [sentence.removeprefix(str(file)) for sentence in caught.value.faults]


def test_everything_that_can_be_said(tmp_path: Path) -> None:
    """All keys, and the two that are enough where the target describes itself."""
    (tmp_path / "bank.binpb").write_bytes(files_of(charges_pb2.DESCRIPTOR).SerializeToString())
    (tmp_path / "participants.toml").write_text(WHOLE)
    bank, post = read_participants(str(tmp_path / "participants.toml"), payload_limit_bytes=LIMIT_BYTES)
    assert (bank.participant, bank.services) == ("bank", ("acme.v1.ChargeService",))
    assert bank.descriptors == files_of(charges_pb2.DESCRIPTOR)
    assert bank.connection == StaticConnection(
        target="dns:///bank.example:443",
        tls=TlsOptions(
            ca_file="ca.pem", client_certificate_file="me.pem", client_key_file="me.key", server_name="bank"
        ),
        headers=(("x-a", "1"), ("x-b", "2")),
        token_file="bank-token",
        capacity=16,
    )
    assert (post.participant, post.descriptors, post.services) == ("post", None, ())
    assert post.connection == StaticConnection(target="127.0.0.1:7300")


def test_no_file_and_an_empty_one(tmp_path: Path) -> None:
    """Neither declares anybody."""
    (tmp_path / "empty.toml").touch()
    for name in ("", str(tmp_path / "empty.toml")):
        assert read_participants(name, payload_limit_bytes=LIMIT_BYTES) == []


def test_every_fault_names_table_and_key(tmp_path: Path) -> None:
    """All at once, and what was written is not repeated where it may be a secret."""
    said = faults_of(
        tmp_path,
        """
        surprise = 1
        [participants.bank]
        target = 7
        password = "s3cret"
        headers = { x-key = 1 }
        services = "acme.v1.ChargeService"
        capacity = true
        descriptors = "gone.binpb"
        [participants.bank.tls]
        ca = "s3cret"
        [participants.post]
        token_file = "t"
        headers = { Upper = "s3cret" }
        [participants]
        desk = "there"
        """,
    )
    assert [sentence.partition(" ")[0] for sentence in said] == [":"] * len(said)
    assert [sentence.split(": ")[1] for sentence in said] == [
        "'surprise' is not known here",
        "[participants.bank] target",
        "[participants.bank] password",
        "[participants.bank] headers",
        "[participants.bank] services",
        "[participants.bank] capacity",
        "[participants.bank] descriptors",
        "[participants.bank] tls.ca",
        "[participants.post] target",
        "[participants.post] token_file",
        "[participants.post] headers['Upper']",
        "[participants.desk]",
    ]
    assert "s3cret" not in "".join(said)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[participants.bank\n", " (AMENDS_PARTICIPANTS_FILE) is no TOML: "),
        ("participants = 3", ": participants is no table"),
        ("[participants.Bank]\ntarget = 'a:1'", ": [participants.Bank] name: 'Bank' is not of the form"),
        ("[participants.bank]\ntarget = 'a:1'\ncapacity = 9999999999", ": [participants.bank] capacity: must be"),
        ("[participants.bank]\ntarget = 'a:1'\ndescriptors = 'text'", "text holds no descriptors; `protoc"),
        (
            '[participants.bank]\ntarget = "a:1"\ndescriptors = "a\\u0000"',
            "[participants.bank] descriptors: names no file.",
        ),
        ("[participants.bank]\ntarget = 'a:1'\ndescriptors = 'large'", "large has more than 32768 bytes"),
    ],
)
def test_one_fault(tmp_path: Path, text: str, said: str) -> None:
    """Each with what to do about it."""
    (tmp_path / "text").write_text("no descriptors")
    (tmp_path / "large").write_bytes(bytes(LIMIT_BYTES + 1))
    (fault,) = faults_of(tmp_path, text)
    assert said in fault


def test_no_such_file(tmp_path: Path) -> None:
    """The sentence names the setting."""
    with pytest.raises(SettingsError, match=r"AMENDS_PARTICIPANTS_FILE\) can't be read"):
        read_participants(str(tmp_path / "gone.toml"), payload_limit_bytes=LIMIT_BYTES)
