"""Key files: their content and modes, and the refused ones."""

import errno
import os
import stat
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from model_registry.errors import BadFile, Refused, Unreachable
from model_registry.signing import keys

PEM, PKCS8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8


def modes(*paths: Path) -> list[int]:
    return [stat.S_IMODE(path.stat().st_mode) for path in paths]


@pytest.mark.parametrize("password", [None, b"secret"])
def test_a_pair_signs_and_verifies(tmp_path: Path, password: bytes | None) -> None:
    private, public, key = keys.generate(tmp_path / "release", password)
    assert (private.name, public.name) == ("release.key", "release.pub")
    assert modes(private, public) == [0o600, 0o644]
    assert (b"ENCRYPTED" in private.read_bytes()) == (password is not None)
    signature = keys.read_private(private, password).sign(b"data")
    read = keys.read_public(public)
    assert read.fingerprint == key.fingerprint
    assert read.verifies(signature, b"data")
    assert not read.verifies(signature, b"other data")
    assert not read.verifies(signature[:-1], b"data")
    assert not read.verifies(b"", b"data")


def test_an_encrypted_key_requires_its_password_and_a_plain_one_none(tmp_path: Path) -> None:
    private, _, _ = keys.generate(tmp_path / "k", b"secret")
    with pytest.raises(BadFile, match="encrypted, and there is no password") as missing:
        keys.read_private(private, None)
    assert "MODEL_REGISTRY_KEY_PASSWORD" in missing.value.hint
    with pytest.raises(BadFile, match="password is wrong"):
        keys.read_private(private, b"wrong")
    private_path, _, key = keys.generate(tmp_path / "plain", None)
    assert keys.read_private(private_path, b"for another key").public().fingerprint == key.fingerprint


@pytest.mark.parametrize("existing", ["k.key", "k.pub"])
def test_nothing_is_ever_overwritten(tmp_path: Path, existing: str) -> None:
    (tmp_path / existing).write_text("precious")
    with pytest.raises(Refused, match="never overwritten"):
        keys.generate(tmp_path / "k", None)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["precious"]


@pytest.mark.parametrize("written_files", [0, 2])
def test_a_disk_that_fills_up_leaves_no_incomplete_pair(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written_files: int
) -> None:
    remaining = [None] * written_files

    def full(_: int) -> None:
        if not remaining:
            raise OSError(errno.ENOSPC, "No space left on device")
        remaining.pop()

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(Unreachable, match="No space left"):
        keys.generate(tmp_path / "k", None)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(Unreachable, match=r"k\.key"):
        keys.generate(tmp_path / "nowhere" / "k", None)


def other_keys() -> dict[str, bytes]:
    private_path = serialization.NoEncryption()
    return {
        "rsa": rsa.generate_private_key(65537, 2048).private_bytes(PEM, PKCS8, private_path),
        "p384": ec.generate_private_key(ec.SECP384R1()).private_bytes(PEM, PKCS8, private_path),
        "cosign": b"-----BEGIN ENCRYPTED SIGSTORE PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED SIGSTORE PRIVATE KEY-----\n",
        "empty": b"",
        "noise": b"\xff" * 100,
        "large": b"x" * (keys.MAX_BYTES + 1),
    }


@pytest.mark.parametrize(("kind", "content"), other_keys().items())
def test_other_keys_are_refused_by_name(tmp_path: Path, kind: str, content: bytes) -> None:
    path = tmp_path / kind
    path.write_bytes(content)
    for read in (lambda: keys.read_private(path, None), lambda: keys.read_public(path)):
        with pytest.raises(BadFile, match=kind):
            read()


def test_other_public_keys_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "k.pub"
    other = ec.generate_private_key(ec.SECP384R1()).public_key()
    path.write_bytes(other.public_bytes(PEM, serialization.PublicFormat.SubjectPublicKeyInfo))
    with pytest.raises(BadFile, match="P-256"):
        keys.read_public(path)
    with pytest.raises(BadFile, match="No such file"):
        keys.read_public(tmp_path / "absent.pub")


def test_openssl_verifies_a_signature(tmp_path: Path) -> None:
    private, public, _ = keys.generate(tmp_path / "k", None)
    (tmp_path / "data").write_bytes(b"data")
    (tmp_path / "sig").write_bytes(keys.read_private(private, None).sign(b"data"))
    arguments = ["openssl", "dgst", "-sha256", "-verify", str(public), "-signature", str(tmp_path / "sig")]
    assert (
        "Verified OK" in subprocess.run([*arguments, str(tmp_path / "data")], capture_output=True, text=True, check=True).stdout
    )


def test_signatures_are_deterministic() -> None:
    """Two processes with the same statement store one bundle."""
    key = keys.PrivateKey(ec.generate_private_key(ec.SECP256R1()))
    assert key.sign(b"x") == key.sign(b"x") != key.sign(b"y")
    assert key.public().verifies(key.sign(b"x"), b"x")
