"""The errors of the model registry. Callers distinguish errors by class, never by message text.

This module is the lowest layer of the package.
"""

from model_registry.redaction import redacted


class RegistryError(Exception):
    """An error about a model version or its storage. Credentials in URLs are masked in the message and the hint.

    Attributes:
        hint: The remedy in one line; empty if there is none.
        exit_code: The exit code of a command that ends with this error.
        transient: Whether the same call may succeed if it is repeated later.
    """

    exit_code = 3
    transient = False

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(redacted(message))
        self.hint = redacted(hint)


class BadReference(RegistryError):
    """An invalid reference, tag or name."""

    exit_code = 2


class BadFile(RegistryError):
    """A key or policy file that cannot be used."""

    exit_code = 2


class Misconfigured(RegistryError):
    """An invalid option, or an invalid file that configures access to a registry."""

    exit_code = 2


class NotFound(RegistryError):
    """The registry has no such tag, manifest or blob."""


class Refused(RegistryError):
    """The request or its content is not allowed."""


class Corrupt(RegistryError):
    """The stored content does not match its digest or its format."""


class Conflict(RegistryError):
    """A tag does not name the manifest that the caller expected: another client moved the tag in between."""

    transient = True


class Unreachable(RegistryError):
    """The registry does not answer: its folder is missing, the network fails, permission is denied, or the disk is full."""

    exit_code = 4
    transient = True


class DiskFailed(Unreachable):
    """A local file or folder cannot be read or written, for example because the disk is full."""


class Denied(Unreachable):
    """The registry denies the request to this account. The error is transient, because access may be granted at any time."""
