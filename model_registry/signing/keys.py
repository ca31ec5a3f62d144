"""Signing keys: ECDSA on the curve P-256 with SHA-256, cosign's default.

A private key is stored in a PKCS#8 PEM file, which is encrypted if there is a password. A public key is stored in a
SubjectPublicKeyInfo PEM file.
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
    """Return the signing algorithm: deterministic ECDSA (RFC 6979), so that signing the same data twice gives equal bytes.

    OpenSSL before 3.2 lacks deterministic ECDSA. The result is then ECDSA with a random number for each signature.
    """
    try:
        return ec.ECDSA(hashes.SHA256(), deterministic_signing=True)
    except UnsupportedAlgorithm:
        return _HASH


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A public key, which verifies signatures."""

    key: ec.EllipticCurvePublicKey

    @property
    def fingerprint(self) -> str:
        """The SHA-256 of the key's DER form, 64 hexadecimal digits."""
        der = self.key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
        return hashlib.sha256(der).hexdigest()

    def verifies(self, sig: bytes, data: bytes) -> bool:
        """Return whether `sig` (ASN.1 DER) is this key's signature over `data`. Never raises."""
        try:
            self.key.verify(sig, data, _HASH)
        except (InvalidSignature, ValueError):
            return False
        return True

    def pem(self) -> bytes:
        """Return the content of the public key file."""
        encoding = serialization.Encoding.PEM
        kind = serialization.PublicFormat.SubjectPublicKeyInfo
        return self.key.public_bytes(encoding, kind)


@dataclass(frozen=True, slots=True)
class PrivateKey:
    """A private key, which signs data."""

    key: ec.EllipticCurvePrivateKey

    def public(self) -> PublicKey:
        """Return the public key."""
        return PublicKey(self.key.public_key())

    def sign(self, data: bytes) -> bytes:
        """Return the signature in ASN.1 DER."""
        return self.key.sign(data, _signing())

    def pem(self, password: bytes | None) -> bytes:
        """Return the content of the private key file, encrypted if there is a password."""
        protection: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if password:
            protection = serialization.BestAvailableEncryption(password)
        return self.key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, protection)


def generate(prefix: Path, password: bytes | None) -> tuple[Path, Path, PublicKey]:
    """Write a new private key to PREFIX.key (readable only by its owner) and its public key to PREFIX.pub.

    Returns the path of the private key, the path of the public key, and the public key.

    Raises:
        Refused: One of the files exists.
        Unreachable: The files cannot be written.
    """
    key = PrivateKey(ec.generate_private_key(ec.SECP256R1()))
    private = prefix.with_name(f"{prefix.name}.key")
    public = prefix.with_name(f"{prefix.name}.pub")
    for path in (private, public):
        if path.exists() or path.is_symlink():
            raise Refused(f"{path} exists; a key is never overwritten", "choose another prefix")
    with atomic_files.report_os_errors("the key"):
        _write_new(private, key.pem(password), 0o600)
        try:
            _write_new(public, key.public().pem(), 0o644)
        except OSError:
            private.unlink()  # one file alone would make the next attempt fail
            raise
    return private, public, key.public()


def read_password(path: Path | None) -> bytes | None:
    """Return the password in the first line of a file; if `path` is None, from the environment. Raises BadFile."""
    if path is None:
        return os.environ.get(PASSWORD, "").encode() or None
    first = atomic_files.read_named("password file", path).partition(b"\n")[0].rstrip(b"\r")
    if not first:
        raise BadFile(f"the first line of the password file {path} is empty", "write the password there")
    return first


def read_private(path: Path, password: bytes | None) -> PrivateKey:
    """Read a private key file.

    Raises BadFile if the file is missing or holds another kind of key, or if its password is missing or wrong.
    """
    data = atomic_files.read_named("key", path, MAX_BYTES)
    if b"ENCRYPTED SIGSTORE PRIVATE KEY" in data or b"ENCRYPTED COSIGN PRIVATE KEY" in data:
        raise BadFile(
            f"{path} is in cosign's own format, which only cosign reads",
            "sign with cosign, or create a pair with `model-registry keygen`",
        )
    try:
        key = serialization.load_pem_private_key(data, password or None)
    except TypeError:
        if password:
            return read_private(path, None)  # an unencrypted key needs no password, even if the environment has one
        hint = f"give --password-file FILE, or set {PASSWORD}"
        raise BadFile(f"{path} is encrypted, and there is no password", hint) from None
    except (ValueError, UnsupportedAlgorithm):
        raise BadFile(
            f"{path} is not a PEM private key, or the password is wrong", "create one with `model-registry keygen`"
        ) from None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
        raise BadFile(f"{path} is not an ECDSA P-256 key", "create one with `model-registry keygen`")
    return PrivateKey(key)


def read_public(path: Path) -> PublicKey:
    """Read a public key file. Raises BadFile."""
    try:
        key = serialization.load_pem_public_key(atomic_files.read_named("key", path, MAX_BYTES))
    except (ValueError, UnsupportedAlgorithm):
        raise BadFile(f"{path} is not a PEM public key", "give the .pub file that keygen wrote, or cosign.pub") from None
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise BadFile(f"{path} is not an ECDSA P-256 key", "use `model-registry keygen` or `cosign generate-key-pair`")
    return PublicKey(key)


def _write_new(path: Path, data: bytes, mode: int) -> None:
    """Create a file that does not exist yet, with the permissions `mode` from the start, and write the data."""
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
