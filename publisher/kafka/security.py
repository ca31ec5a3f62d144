"""Authentication and encryption: the section `security` of `kafka:`, and of a relay's `source:` and `destination:`.

Combinations of settings that cannot work are rejected when the settings are loaded. The error has the name of the setting, its
value and the remedy. Passwords come from files or the environment, are read again for each new client, and are never printed.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NoReturn, Self, cast

from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator

from model_registry import suggestions
from publisher.kafka import tls_files

FILES = ("password_file", "ca_file", "certificate_file", "key_password_file", "key_file")
LOGIN = ("mechanism", "username", "password", "password_file")
TLS = ("ca_file", "certificate_file", "key_file", "key_password_file", "verify_hostname")
PROPERTIES = frozenset(
    {
        "security.protocol",
        "sasl.mechanism",
        "sasl.mechanisms",
        "sasl.username",
        "sasl.password",
        "ssl.ca.location",
        "ssl.certificate.location",
        "ssl.key.location",
        "ssl.key.password",
        "ssl.endpoint.identification.algorithm",
    }
)
"""The client properties that this section sets."""


class SecurityFault(ValueError):
    """A setting of a section `security` contradicts the other settings, or names a file that cannot be used."""

    def __init__(self, setting: str, message: str) -> None:
        super().__init__(message)
        self.setting = setting


class SecuritySettings(BaseModel):
    """The section `security`. Certificates and keys are PEM files. A password file contains one line, the password."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    """Whether the connection is encrypted (`SSL`), and whether the client logs in (`SASL`)."""
    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] | None = None
    """How the client logs in."""
    username: str | None = Field(default=None, min_length=1)
    """The name to log in with."""
    password: SecretStr | None = Field(default=None, min_length=1)
    """The password, from the environment only."""
    password_file: Path | None = None
    """A file of one line that holds the password."""
    ca_file: Path | None = None
    """The certificate authorities that issue the brokers' certificates (PEM); default: those of the system."""
    certificate_file: Path | None = None
    """The client's own certificate (PEM), for mutual TLS."""
    key_file: Path | None = None
    """The private key of `certificate_file` (PEM)."""
    key_password_file: Path | None = None
    """A file of one line that holds the password of `key_file`."""
    verify_hostname: bool = True
    """Whether a broker's certificate must contain the host name of the broker."""

    @property
    def login(self) -> bool:
        """Whether the client logs in with a name and a password."""
        return self.protocol.startswith("SASL_")

    @property
    def tls(self) -> bool:
        """Whether the connection is encrypted and the broker has a certificate."""
        return self.protocol.endswith("SSL")

    def certificate_files(self, section: str) -> dict[str, Path]:
        """Return the certificate files by the full name of their setting. `section` is for example `kafka.security`."""
        files = {f"{section}.ca_file": self.ca_file, f"{section}.certificate_file": self.certificate_file}
        return {name: path for name, path in files.items() if path is not None}

    @model_validator(mode="after")
    def _can_work(self) -> Self:
        if self.login:
            self._complete_login()
        else:
            self._refuse(LOGIN, "log-in", "SASL_SSL" if self.tls else "SASL_PLAINTEXT")
        if self.tls:
            self._complete_tls()
        else:
            self._refuse(TLS, "TLS", "SASL_SSL" if self.login else "SSL")
        for name in FILES:
            _check_file(name, getattr(self, name), self)
        return self

    def _complete_login(self) -> None:
        for name in ("mechanism", "username"):
            if getattr(self, name) is None:
                _fail(
                    name, f"this setting is missing; protocol {self.protocol} requires a mechanism, a username and a password"
                )
        if (self.password is None) == (self.password_file is None):
            if self.password is None:
                way_out = "name a file, or set the environment variable that ends with SECURITY__PASSWORD"
                _fail("password_file", f"this setting is missing; {way_out}")
            _fail("password_file", "both password_file and password are set; remove one of the two settings")

    def _complete_tls(self) -> None:
        for name, other in (
            ("certificate_file", "key_file"),
            ("key_file", "certificate_file"),
            ("key_password_file", "key_file"),
        ):
            if getattr(self, name) is not None and getattr(self, other) is None:
                _fail(other, f"this setting is missing, but {name} is {str(getattr(self, name))!r}; set both, or neither")

    def _refuse(self, names: tuple[str, ...], condition: str, protocol: str) -> None:
        """Raise SecurityFault if one of the settings `names` is set although the configured protocol does not use it.

        For the message, `condition` is the feature that the configured protocol lacks, and `protocol` a protocol that has it.
        """
        for name in names:
            value = getattr(self, name)
            if value not in (None, True):
                shown = "this setting is given" if isinstance(value, SecretStr) else f"this setting is {str(value)!r}"
                way_out = f"write protocol: {protocol}, or remove {name}"
                _fail(name, f"{shown}, but protocol {self.protocol} has no {condition}; {way_out}")


def check_not_repeated(security: SecuritySettings, extra: Mapping[str, Any], section: str) -> None:
    """Raise SecurityFault if `extra` sets a property that `security` already sets."""
    for key in sorted(extra.keys() & PROPERTIES) if security.protocol != "PLAINTEXT" else ():
        _fail(f"extra.{key}", f"{section}.security sets this already; remove it from {section}.extra")


OPEN = frozenset(SecuritySettings.model_fields) - {"password"}
"""The settings of the section whose values are not secret."""


def properties(security: SecuritySettings) -> dict[str, str]:
    """Return the properties of librdkafka for this section, passwords included.

    Raises:
        OSError: if a password file can no longer be read.
        ValueError: if a password file no longer contains one line.
    """
    result: dict[str, str] = {}
    if security.protocol != "PLAINTEXT":
        result["security.protocol"] = security.protocol
    if security.login:
        password = security.password
        file = cast("Path", security.password_file)
        result |= {
            "sasl.mechanism": str(security.mechanism),
            "sasl.username": str(security.username),
            "sasl.password": password.get_secret_value() if password else tls_files.secret(file),
        }
    if security.tls:
        files = {
            "ssl.ca.location": security.ca_file,
            "ssl.certificate.location": security.certificate_file,
            "ssl.key.location": security.key_file,
        }
        result |= {name: str(path) for name, path in files.items() if path is not None}
        result["ssl.endpoint.identification.algorithm"] = "https" if security.verify_hostname else "none"
        if security.key_password_file is not None:
            result["ssl.key.password"] = tls_files.secret(security.key_password_file)
    return result


def resolve(around: Any, base: Path) -> None:
    """Make relative paths in the section `security` absolute, before the section is validated.

    Args:
        around: the raw values of the section that contains `security`; they are changed.
        base: the folder that relative paths start from.
    """
    section: Any = around.get("security") if isinstance(around, dict) else None
    for name in FILES if isinstance(section, dict) else ():
        if isinstance(section.get(name), str):
            section[name] = (base / section[name]).resolve()


def error_line(fault: Mapping[str, Any], key: str) -> str | None:
    """Return the line of the error message for `fault`, one of pydantic's errors; None if it is not a SecurityFault.

    `key` is the name of the faulty section.
    """
    error = fault.get("ctx", {}).get("error")
    return f"{key}.{error.setting}: {error}" if isinstance(error, SecurityFault) else None


def _check_file(name: str, path: Path | None, security: SecuritySettings) -> None:
    if path is None:
        return
    try:
        if name.endswith("password_file"):
            tls_files.secret(path)
        elif name == "key_file":
            locked_by = security.key_password_file
            tls_files.check_key(
                path, tls_files.secret(locked_by) if locked_by else None, cast("Path", security.certificate_file)
            )
        else:
            tls_files.certificates(path)
    except OSError as error:
        hint = suggestions.file_question(path) or "a relative path starts at the folder of the file that contains the setting"
        _fail(name, f"{str(path)!r}: cannot be read: {error.strerror}; {hint}")
    except ValueError as error:
        _fail(name, f"{str(path)!r}: {error}")


def _fail(setting: str, message: str) -> NoReturn:
    raise SecurityFault(setting, message)
