"""Contract of the check that runs before a process loads a version; `scorer/crash_isolation/trial_load.py` implements it."""

import contextlib
from collections.abc import Callable
from typing import Protocol

from model_registry.package import Package

ACCEPTED, REFUSED, DIED, SUPERSEDED = "accepted", "refused", "died", "superseded"
TOO_LARGE, TOO_LONG = "too-large", "too-long"
OUTCOMES = (ACCEPTED, REFUSED, DIED, TOO_LARGE, TOO_LONG, SUPERSEDED)
"""Of a trial."""


class Superseded(Exception):
    """The version is no longer wanted: the channel has moved, or this process ends."""


class LoadGuard(Protocol):
    """Keeps a version from ending the process that loads it. Used by one thread at a time."""

    def refusal(self, identity: str) -> str | None:
        """Why this version (see `Resolution.identity`) is not loaded, because of deaths before; None if it may be."""

    def loading(self, identity: str) -> contextlib.AbstractContextManager[None]:
        """To be held while this version is tried and loaded: a death in it counts against the version."""

    def attempt(self, package: Package, identity: str, is_wanted: Callable[[], bool]) -> None:
        """Try the version in another process. `is_wanted` is called several times a second meanwhile.

        Raises ModelRefused with the reason if the version is not fit, and Superseded once it is not wanted.
        """


class Unguarded:
    """Lets every version be loaded at once."""

    def refusal(self, identity: str) -> str | None:  # noqa: ARG002
        return None

    def loading(self, identity: str) -> contextlib.AbstractContextManager[None]:  # noqa: ARG002
        return contextlib.nullcontext()

    def attempt(self, package: Package, identity: str, is_wanted: Callable[[], bool]) -> None:
        pass
