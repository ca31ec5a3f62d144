"""Signing keys: ECDSA on the curve P-256 over SHA-256, what cosign makes and reads by default.

A private key is a PKCS#8 PEM file, encrypted where a password was given; a public key is a SubjectPublicKeyInfo PEM file.
"""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from model_registry import atomic_files
from model_registry.errors import BadFile, Refused

MAX_BYTES = 64 << 10  # of a key file
PASSWORD = "MODEL_REGISTRY_KEY_PASSWORD"
_HASH = ec.ECDSA(hashes.SHA256())


def _signing() -> ec.ECDSA:
    """The same data gives the same signature (RFC 6979), so that a thing said twice is stored once. OpenSSL before 3.2 draws a
    number for each."""
    try:
        return ec.ECDSA(hashes.SHA256(), deterministic_signing=True)
    except UnsupportedAlgorithm:
        return _HASH


@dataclass(frozen=True, slots=True)
class PublicKey:
    key: ec.EllipticCurvePublicKey

    @property
    def fingerprint(self) -> str:
        """The SHA-256 of its DER form, 64 hexadecimal digits."""
        der = self.key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
        return hashlib.sha256(der).hexdigest()

    def verifies(self, sig: bytes, data: bytes) -> bool:
        """Whether `sig` (ASN.1 DER) is this key's over `data`. Never raises, whatever the bytes are."""
        try:
            self.key.verify(sig, data, _HASH)
        except (InvalidSignature, ValueError):
            return False
        return True

    def pem(self) -> bytes:
        """The public key file."""
        encoding, kind = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        return self.key.public_bytes(encoding, kind)


@dataclass(frozen=True, slots=True)
class PrivateKey:
    key: ec.EllipticCurvePrivateKey

    def public(self) -> PublicKey:
        return PublicKey(self.key.public_key())

    def sign(self, data: bytes) -> bytes:
        """An ASN.1 DER signature."""
        return self.key.sign(data, _signing())

    def pem(self, password: bytes | None) -> bytes:
        """The private key file, encrypted where there is a password."""
        protection: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if password:
            protection = serialization.BestAvailableEncryption(password)
        return self.key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, protection)


def generate(prefix: Path, password: bytes | None) -> tuple[Path, Path, PublicKey]:
    """Make a pair of keys in PREFIX.key (readable by its owner only) and PREFIX.pub, and return where they are.

    Raises Refused where one of the files exists, Unreachable where they cannot be written.
    """
    key = PrivateKey(ec.generate_private_key(ec.SECP256R1()))
    private, public = prefix.with_name(f"{prefix.name}.key"), prefix.with_name(f"{prefix.name}.pub")
    for path in (private, public):
        if path.exists() or path.is_symlink():
            raise Refused(f"{path} exists; a key is never overwritten", "choose another prefix")
    with atomic_files.reported("the key"):
        _write_new(private, key.pem(password), 0o600)
        try:
            _write_new(public, key.public().pem(), 0o644)
        except OSError:
            private.unlink()  # half a pair would stand in the way of the next try
            raise
    return private, public, key.public()


def read_password(path: Path | None) -> bytes | None:
    """The first line of a file, else what the environment holds. Raises BadFile."""
    if path is None:
        return os.environ.get(PASSWORD, "").encode() or None
    first = atomic_files.read_named("password file", path).partition(b"\n")[0].rstrip(b"\r")
    if not first:
        raise BadFile(f"the first line of the password file {path} is empty", "write the password there")
    return first


def read_private(path: Path, password: bytes | None) -> PrivateKey:
    """Read a private key file. Raises BadFile: not there, no such key, or the password is missing or wrong."""
    data = atomic_files.read_named("key", path, MAX_BYTES)
    if b"ENCRYPTED SIGSTORE PRIVATE KEY" in data or b"ENCRYPTED COSIGN PRIVATE KEY" in data:
        raise BadFile(f"{path} is in cosign's own format, which only cosign reads", "sign with cosign, or keygen a pair here")
    try:
        key = serialization.load_pem_private_key(data, password or None)
    except TypeError:
        if password:
            return read_private(path, None)  # a plain key needs no password, whatever the environment holds
        hint = f"give --password-file FILE, or set {PASSWORD}"
        raise BadFile(f"{path} is encrypted, and there is no password", hint) from None
    except (ValueError, UnsupportedAlgorithm):
        raise BadFile(f"{path} is no PEM private key, or the password is wrong", "model-registry keygen makes one") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
        raise BadFile(f"{path} is no ECDSA P-256 key", "model-registry keygen makes one")
    return PrivateKey(key)


def read_public(path: Path) -> PublicKey:
    """Read a public key file. Raises BadFile."""
    try:
        key = serialization.load_pem_public_key(atomic_files.read_named("key", path, MAX_BYTES))
    except (ValueError, UnsupportedAlgorithm):
        raise BadFile(f"{path} is no PEM public key", "it is the .pub file that keygen wrote, or cosign.pub") from None
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise BadFile(f"{path} is no ECDSA P-256 key", "model-registry keygen, or cosign generate-key-pair, makes one")
    return PublicKey(key)


def _write_new(path: Path, data: bytes, mode: int) -> None:
    """Write a file that must not exist, with these permissions from its first moment."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
    except OSError:
        path.unlink()
        raise
    atomic_files.sync_directory(path.parent)
