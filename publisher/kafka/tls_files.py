"""Read PEM files and password files. Errors name the fault, and never contain a secret.

The parser of certificates (7 MB, a tenth of the start time of a command) is imported on demand.
"""

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography import x509


def secret(path: Path) -> str:
    """Return the only line of a password file. Raises OSError, or ValueError if the file is not one line of text."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        raise ValueError("the file is not text; a password file must contain one line of UTF-8") from None
    if len(lines) != 1 or not lines[0]:
        raise ValueError(f"the file contains {len(lines)} lines; a password file must contain one line, the password")
    return lines[0]


def certificates(path: Path) -> "list[x509.Certificate]":
    """Return the certificates of a PEM file. Raises OSError, or ValueError if the file contains no certificate."""
    from cryptography import x509

    try:
        return x509.load_pem_x509_certificates(path.read_bytes())
    except ValueError:
        raise ValueError("the file contains no PEM certificate (-----BEGIN CERTIFICATE-----)") from None


def check_key(path: Path, password: str | None, certificate: Path) -> None:
    """Check that a PEM key can be decrypted with `password`, and is the key of the first certificate in `certificate`.

    Raises:
        OSError: if a file cannot be read.
        ValueError: if the key cannot be decrypted, or belongs to another certificate.
    """
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

    data = path.read_bytes()
    try:
        key = load_pem_private_key(data, None if password is None else password.encode())
    except TypeError:
        if password is None:
            raise ValueError("the key is encrypted; set key_password_file to a file that contains its password") from None
        raise ValueError("the key is not encrypted; remove key_password_file") from None
    except ValueError:
        fault = "the file contains no PEM key (-----BEGIN PRIVATE KEY-----)"
        raise ValueError(fault if password is None else f"{fault}, or key_password_file contains another password") from None
    form = Encoding.DER, PublicFormat.SubjectPublicKeyInfo
    if key.public_key().public_bytes(*form) != certificates(certificate)[0].public_key().public_bytes(*form):
        raise ValueError(
            f"the file is not the key of certificate_file {str(certificate)!r}; "
            "set certificate_file and key_file to a matching pair"
        )


def expired(path: Path) -> dt.datetime | None:
    """Return when the first certificate of a PEM file has expired; None if it is still valid. Raises OSError, ValueError."""
    end = certificates(path)[0].not_valid_after_utc
    return end if end <= dt.datetime.now(dt.UTC) else None
