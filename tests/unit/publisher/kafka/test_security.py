"""Invalid settings are refused when they are loaded, with the setting, its value and the remedy."""

from pathlib import Path
from typing import Any

import pytest
import trustme
from pydantic import ValidationError

from publisher.kafka import clients as kafka
from publisher.kafka import security
from publisher.kafka.clients import KafkaSettings
from publisher.kafka.security import SecuritySettings

LOGIN = {"protocol": "SASL_SSL", "mechanism": "SCRAM-SHA-512", "username": "me"}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a password, and valid and invalid certificates and keys."""
    folder = tmp_path_factory.mktemp("files")
    authority = trustme.CA()
    for name in ("one", "two"):
        leaf = authority.issue_cert(f"{name}.test")
        leaf.private_key_pem.write_to_path(str(folder / f"{name}.key"))
        leaf.cert_chain_pems[0].write_to_path(str(folder / f"{name}.crt"))
    (folder / "password").write_text("hush\n")
    (folder / "lines").write_text("hush\nhush\n")
    (folder / "empty").write_text("")
    (folder / "bytes").write_bytes(b"\xff\xfe\xff")
    return folder


WRONG: list[tuple[dict[str, Any], tuple[str, ...]]] = [
    ({**LOGIN, "mechanism": None, "password": "p"}, ("mechanism: this setting is missing", "SASL_SSL")),
    ({**LOGIN, "username": None, "password": "p"}, ("username: this setting is missing",)),
    (LOGIN, ("password_file: this setting is missing", "SECURITY__PASSWORD")),
    ({**LOGIN, "password": "p", "password_file": "password"}, ("password_file: both password_file and password are set",)),
    (
        {"username": "me"},
        ("username: this setting is 'me', but protocol PLAINTEXT has no log-in", "SASL_PLAINTEXT", "remove username"),
    ),
    ({"protocol": "SSL", "password": "hush"}, ("password: this setting is given, but protocol SSL has no log-in", "SASL_SSL")),
    ({"protocol": "PLAINTEXT", "ca_file": "one.crt"}, ("ca_file:", "one.crt", "write protocol: SSL")),
    (
        {**LOGIN, "protocol": "SASL_PLAINTEXT", "password": "p", "verify_hostname": False},
        ("verify_hostname: this setting is 'False'", "write protocol: SASL_SSL"),
    ),
    (
        {"protocol": "SSL", "certificate_file": "one.crt"},
        ("key_file: this setting is missing, but certificate_file is", "one.crt"),
    ),
    ({"protocol": "SSL", "key_file": "one.key"}, ("certificate_file: this setting is missing, but key_file is",)),
    ({"protocol": "SSL", "key_password_file": "password"}, ("key_file: this setting is missing, but key_password_file is",)),
    ({"protocol": "SSL", "ca_file": "nowhere"}, ("ca_file:", "nowhere", "No such file")),
    ({"protocol": "SSL", "ca_file": "one.key"}, ("ca_file:", "no PEM certificate")),
    ({"protocol": "SSL", "certificate_file": "one.crt", "key_file": "two.key"}, ("key_file:", "is not the key of")),
    ({"protocol": "SSL", "certificate_file": "one.crt", "key_file": "one.crt"}, ("key_file:", "no PEM key")),
    (
        {"protocol": "SSL", "certificate_file": "one.crt", "key_file": "one.key", "key_password_file": "password"},
        ("key_file:", "is not encrypted; remove key_password_file"),
    ),
    (
        {"protocol": "SSL", "certificate_file": "one.crt", "key_file": "one.key", "key_password_file": "nowhere"},
        ("security.key_password_file:", "nowhere", "No such file"),
    ),
    ({**LOGIN, "password_file": "empty"}, ("password_file:", "contains 0 lines")),
    ({**LOGIN, "password_file": "lines"}, ("password_file:", "contains 2 lines")),
    ({**LOGIN, "password_file": "bytes"}, ("password_file:", "is not text")),
]


@pytest.mark.parametrize(("section", "parts"), WRONG)
def test_an_invalid_combination_is_named(files: Path, section: dict[str, Any], parts: tuple[str, ...]) -> None:
    raw = {"security": dict(section)}
    security.resolve(raw, files)
    with pytest.raises(ValidationError) as refusal:
        SecuritySettings.model_validate(raw["security"])
    line = security.error_line(refusal.value.errors()[0], "kafka.security") or ""
    assert line.startswith("kafka.security.")
    assert all(part in line for part in parts), line
    assert "hush" not in line


def test_extra_does_not_override_security(files: Path) -> None:
    proof = {**LOGIN, "password_file": files / "password"}
    values = {"bootstrap_servers": "b:1", "security": proof, "extra": {"sasl.password": "hush"}}
    with pytest.raises(ValidationError) as refusal:
        KafkaSettings.model_validate(values)
    line = security.error_line(refusal.value.errors()[0], "kafka")
    assert line == "kafka.extra.sasl.password: kafka.security sets this already; remove it from kafka.extra"


def test_the_properties_of_a_client(files: Path) -> None:
    proof = SecuritySettings.model_validate({**LOGIN, "password_file": files / "password", "ca_file": files / "one.crt"})
    properties = kafka.client(KafkaSettings(bootstrap_servers="b:1", security=proof), "me")
    assert properties["security.protocol"] == "SASL_SSL"
    assert properties["sasl.password"] == "hush"
    assert properties["ssl.ca.location"] == str(files / "one.crt")
    assert properties["ssl.endpoint.identification.algorithm"] == "https"
    assert security.properties(SecuritySettings()) == {}


def test_no_secret_is_shown() -> None:
    secrets = [
        "kafka.security.password",
        "kafka.security.passwort",
        "kafka.extra.sasl.password",
        "ssl.key.pem",
        "sasl.jaas.config",
    ]
    harmless = ["kafka.security.password_file", "kafka.security.username", "kafka.bootstrap_servers", "ssl.key.location"]
    assert all(map(kafka.is_secret, secrets))
    assert not any(map(kafka.is_secret, harmless))
    text = repr(SecuritySettings.model_validate({**LOGIN, "protocol": "SASL_PLAINTEXT", "password": "hush"}))
    assert "hush" not in text
