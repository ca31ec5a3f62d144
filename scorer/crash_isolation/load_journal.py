"""Journal of the version that a process is loading, and of how often it died doing so, beside the in-flight journal.

A trial process (`trial_load.py`) keeps a version from killing its scorer. This journal is for deaths that no trial prevents:
the whole container is killed for memory, or the version kills in the serving process only.
"""

import contextlib
import logging
import time
from collections.abc import Iterator

from scorer.crash_isolation.in_flight_journal import InFlightJournal

log = logging.getLogger(__name__)

LETHAL = 2  # deaths while one version was loaded, without a successful load of it in between
REMEMBERED = 8  # versions with deaths


class LoadJournal:
    """The journal of one process. It counts the death that its predecessor's entry records."""

    def __init__(self, in_hand: InFlightJournal) -> None:
        self._in_hand = in_hand
        self._began: float | None = None
        loading, self._deaths = in_hand.loads()
        if loading:
            self._deaths[loading] = self._deaths.pop(loading, 0) + 1
            log.warning("a process died while it loaded a version, which is blamed for it: %s", loading)
            self._write("")

    def deaths(self, identity: str) -> int:
        """Return how many processes died while loading this version (see `Resolution.identity`)."""
        return self._deaths.get(identity, 0)

    def refusal(self, identity: str) -> str | None:
        """Return why this version is no longer loaded; None if it may be."""
        if (deaths := self.deaths(identity)) < LETHAL:
            return None
        return f"{deaths} processes died while they loaded it; promote another version, or this one again to try it again"

    @contextlib.contextmanager
    def loading(self, identity: str) -> Iterator[None]:
        """Record on disk that this version is being loaded; a successful load clears its deaths."""
        self._began = time.monotonic()
        self._write(identity)
        try:
            yield
            self._deaths.pop(identity, None)
        finally:
            self._began = None
            self._write("")

    def age_seconds(self) -> float:
        """Return the duration of the current load; 0 without one."""
        return 0.0 if (began := self._began) is None else time.monotonic() - began

    def _write(self, loading: str) -> None:
        self._deaths = dict(list(self._deaths.items())[-REMEMBERED:])
        self._in_hand.note_loads(loading, self._deaths)
