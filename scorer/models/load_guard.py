"""Contract of the check that runs before a process loads a version; `scorer/crash_isolation/trial_load.py` implements it."""

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
"""The outcomes of a trial."""


class Superseded(Exception):
    """The version is no longer aspired: the channel has moved, or this process ends."""


class LoadGuard(Protocol):
    """Protection of a process from versions whose load crashes it. Used by one thread at a time."""

    def refusal(self, identity: str) -> str | None:
        """Return why this version (see `Resolution.identity`) is refused after earlier crashes; None if it may load."""

    def loading(self, identity: str) -> contextlib.AbstractContextManager[None]:
        """Return the context of a trial and load: a crash inside it counts against the version."""

    def attempt(self, package: Package, identity: str, is_wanted: Callable[[], bool]) -> None:
        """Load the version in a trial process, and call `is_wanted` several times a second until the trial ends.

        Raises:
            ModelRefused: The version cannot serve.
            Superseded: The version is no longer aspired.
        """


class Unguarded:
    """A guard that allows every version to load without a trial."""

    def refusal(self, identity: str) -> str | None:  # noqa: ARG002
        return None

    def loading(self, identity: str) -> contextlib.AbstractContextManager[None]:  # noqa: ARG002
        return contextlib.nullcontext()

    def attempt(self, package: Package, identity: str, is_wanted: Callable[[], bool]) -> None:
        pass
