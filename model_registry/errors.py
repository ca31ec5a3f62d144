"""The errors of the registry. Code switches on these classes, never on message text. Lowest layer of the package."""

from model_registry.redaction import redacted


class RegistryError(Exception):
    """Something about a model version or where it is kept.

    `hint` says the way out in one line; `exit_code` is what a command ends with; `transient` says that the same call may
    succeed later without anybody changing anything in the registry. Credentials in URLs are masked in both texts.
    """

    exit_code = 3
    transient = False

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(redacted(message))
        self.hint = redacted(hint)


class BadReference(RegistryError):
    """A reference, tag or name that nothing can be called."""

    exit_code = 2


class BadFile(RegistryError):
    """A key or policy file that cannot be used."""

    exit_code = 2


class Misconfigured(RegistryError):
    """An option, or a file that configures access to a registry, that cannot be used."""

    exit_code = 2


class NotFound(RegistryError):
    """The registry answers, and has no such tag, manifest or blob."""


class Refused(RegistryError):
    """Asked for something that must not be done, or handed something that must not be used."""


class Corrupt(RegistryError):
    """What is stored is not what its digest or its format says."""


class Conflict(RegistryError):
    """A tag is not where the caller expected it: somebody else moved it in between."""

    transient = True


class Unreachable(RegistryError):
    """The registry does not answer: no folder, no network, no permission, no space."""

    exit_code = 4
    transient = True


class Denied(Unreachable):
    """The registry answers, and does not let this account do it. Rights may be granted at any time."""
