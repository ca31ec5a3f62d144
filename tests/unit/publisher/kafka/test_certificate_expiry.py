"""The metric of the time at which certificates expire."""

import datetime as dt
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from prometheus_client import CollectorRegistry

from publisher.kafka.certificate_expiry import CertificateExpiry, expiry_timestamp

NAME = "scorer_certificate_expiry_timestamp_seconds"
SETTING = "kafka.security.certificate_file"
START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def certificate(days: int) -> bytes:
    """Return a self-signed certificate that expires `days` days after START, as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "scorer")])
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    signed = builder.not_valid_before(START).not_valid_after(START + dt.timedelta(days=days)).sign(key, hashes.SHA256())
    return signed.public_bytes(Encoding.PEM)


def expiry(days: int) -> float:
    return (START + dt.timedelta(days=days)).timestamp()


def exported(registry: CollectorRegistry, setting: str = SETTING) -> float | None:
    return registry.get_sample_value(NAME, {"setting": setting})


@pytest.fixture
def registry(tmp_path: Path) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(CertificateExpiry("scorer", {SETTING: tmp_path / "tls.crt"}))
    return registry


def test_chain_expires_with_its_first_certificate(tmp_path: Path) -> None:
    (tmp_path / "tls.crt").write_bytes(certificate(90) + certificate(30))
    assert expiry_timestamp(tmp_path / "tls.crt", is_bundle=False) == expiry(30)


def test_bundle_of_authorities_expires_with_its_last_certificate(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_bytes(certificate(1) + certificate(3650))
    assert expiry_timestamp(tmp_path / "ca.crt", is_bundle=True) == expiry(3650)


def test_renewed_file_is_read_again(tmp_path: Path, registry: CollectorRegistry) -> None:
    (tmp_path / "tls.crt").write_bytes(certificate(30))
    assert exported(registry) == expiry(30)
    (tmp_path / "renewed").write_bytes(certificate(60))
    (tmp_path / "renewed").replace(tmp_path / "tls.crt")
    assert exported(registry) == expiry(60)


@pytest.mark.parametrize("content", [None, b"", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"])
def test_unreadable_file_has_no_sample(tmp_path: Path, registry: CollectorRegistry, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "tls.crt").write_bytes(content)
    assert exported(registry) is None
