"""Certificates for the secured broker and its clients, and those that are wrong in one way each."""

import datetime as dt
from dataclasses import dataclass
from pathlib import Path

import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

HOST = "127.0.0.1"
KEY_PASSWORD = "key-hush-4711"


@dataclass(frozen=True)
class Identity:
    """PEM files: a certificate with its chain, its key (PKCS 8), and both in one file, as Kafka reads a key store."""

    certificate: Path
    key: Path
    store: Path


class Certificates:
    """Two authorities, one of them foreign to the broker, and what they have issued, in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ours, self._foreign = trustme.CA(), trustme.CA()
        self.ca, self.foreign_ca = folder / "ca.pem", folder / "foreign-ca.pem"
        self._ours.cert_pem.write_to_path(str(self.ca))
        self._foreign.cert_pem.write_to_path(str(self.foreign_ca))
        now = dt.datetime.now(dt.UTC)
        long_past, past = now - dt.timedelta(days=9), now - dt.timedelta(days=1)
        self.server = self._identity("server", self._ours.issue_cert(HOST, "localhost"))
        self.expired_server = self._identity(
            "expired-server", self._ours.issue_cert(HOST, not_after=past, not_before=long_past)
        )
        self.other_host = self._identity("other-host", self._ours.issue_cert("kafka.example.com"))
        self.client = self._identity("client", self._ours.issue_cert("client.test", common_name="mtls"))
        self.foreign_client = self._identity("foreign-client", self._foreign.issue_cert("client.test", common_name="mtls"))
        self.expired_client = self._identity(
            "expired-client", self._ours.issue_cert("client.test", common_name="mtls", not_after=past, not_before=long_past)
        )
        self.key_password = KEY_PASSWORD
        self.locked_key = folder / "locked.key"
        key = load_pem_private_key(self.client.key.read_bytes(), None)
        self.locked_key.write_bytes(
            key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(KEY_PASSWORD.encode()))
        )

    def _identity(self, name: str, leaf: trustme.LeafCert) -> Identity:
        key = load_pem_private_key(leaf.private_key_pem.bytes(), None)
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        chain = b"".join(blob.bytes() for blob in leaf.cert_chain_pems)
        files = {part: self._folder / f"{name}.{part}" for part in ("crt", "key", "pem")}
        files["crt"].write_bytes(chain)
        files["key"].write_bytes(pem)
        files["pem"].write_bytes(pem + chain)
        return Identity(files["crt"], files["key"], files["pem"])
