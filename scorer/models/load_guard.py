"""Contract of the check that runs before a process loads a version; `scorer/crash_isolation/trial_load.py` implements it."""

import contextlib
from collections.abc import Callable
from typing import Protocol

from model_registry.package import Package

ACCEPTED, REFUSED, DIED, SUPERSEDED = "accepted", "refused", "died", "superseded"
TOO_LARGE, TOO_LONG = "too-large", "too-long"
OUTCOMES = (ACCEPTED, REFUSED, DIED, TOO_LARGE, TOO_LONG, SUPERSEDED)
"""The outcomes of a trial."""


class Superseded(Exception):
    """The version is no longer wanted: the channel has moved, or this process ends."""


class LoadGuard(Protocol):
    """Prevents a version from ending the process that loads it. Used by one thread at a time."""

    def refusal(self, identity: str) -> str | None:
        """Return why this version (see `Resolution.identity`) is refused after earlier deaths; None if it may load."""

    def loading(self, identity: str) -> contextlib.AbstractContextManager[None]:
        """Return the context of a trial and load: a death in it counts against the version."""

    def attempt(self, package: Package, identity: str, is_wanted: Callable[[], bool]) -> None:
        """Try the version in another process. `is_wanted` is called several times a second meanwhile.

        Raises:
            ModelRefused: The version is not fit to serve.
            Superseded: The version is no longer wanted.
        """


class Unguarded:
    """Lets every version load at once."""

    def refusal(self, identity: str) -> str | None:  # noqa: ARG002
        return None

    def loading(self, identity: str) -> contextlib.AbstractContextManager[None]:  # noqa: ARG002
        return contextlib.nullcontext()

    def attempt(self, package: Package, identity: str, is_wanted: Callable[[], bool]) -> None:
        pass
