"""The contract of load guards, which load a version in a trial process before this process loads the version.

`scorer/crash_isolation/trial_load.py` implements the contract.
"""

import contextlib
from collections.abc import Callable
from typing import Protocol

from model_registry.package import Package

ACCEPTED = "accepted"
REFUSED = "refused"
DIED = "died"
SUPERSEDED = "superseded"
TOO_LARGE = "too-large"
TOO_LONG = "too-long"
OUTCOMES = (ACCEPTED, REFUSED, DIED, TOO_LARGE, TOO_LONG, SUPERSEDED)
"""The outcomes of the load of a version in a trial process."""


class Superseded(Exception):
    """The load in the trial process was stopped: the channel no longer names the version, or this process ends."""


class LoadGuard(Protocol):
    """A guard that protects this process from versions that crash it when they are loaded.

    Only one thread at a time may use a guard.
    """

    def refusal(self, identity: str) -> str | None:
        """Return the reason why a version is refused after earlier crashes; None if the version may be loaded.

        `identity` is `Resolution.identity` of the version.
        """

    def loading(self, identity: str) -> contextlib.AbstractContextManager[None]:
        """Return a context manager for the code that loads a version, first in a trial process and then in this process.

        If this process crashes in the `with` block, the crash is attributed to the version; see `refusal`.
        """

    def attempt(self, package: Package, identity: str, is_wanted: Callable[[], bool]) -> None:
        """Load the version in a trial process. `is_wanted` is called several times a second.

        Raises:
            ModelRefused: The version could not be loaded in the trial process.
            Superseded: `is_wanted` returned False.
        """


class Unguarded:
    """A guard that uses no trial process and refuses no version."""

    def refusal(self, identity: str) -> str | None:  # noqa: ARG002
        return None

    def loading(self, identity: str) -> contextlib.AbstractContextManager[None]:  # noqa: ARG002
        return contextlib.nullcontext()

    def attempt(self, package: Package, identity: str, is_wanted: Callable[[], bool]) -> None:
        pass
