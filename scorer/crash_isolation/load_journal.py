"""The load journal: the version that a process is loading, and the number of deaths during loads of each version.

The journal is stored in the in-flight journal (`in_flight_journal.py`). It covers the deaths that a trial process
(`trial_load.py`) does not prevent.
"""

# Such a death occurs if the whole container is killed because it has no memory left, or if the version crashes the serving
# process but not the trial process.

import contextlib
import logging
import time
from collections.abc import Iterator

from scorer.crash_isolation.in_flight_journal import InFlightJournal

log = logging.getLogger(__name__)

LETHAL = 2  # a version is refused after this many deaths during its loads without a successful load in between
REMEMBERED = 8  # versions whose deaths are stored


class LoadJournal:
    """The load journal of one process.

    If the previous process died while it loaded a version, the constructor counts this death.
    """

    def __init__(self, journal: InFlightJournal) -> None:
        self._journal = journal
        self._began: float | None = None
        loading, self._deaths = journal.loads()
        if loading:
            self._deaths[loading] = self._deaths.pop(loading, 0) + 1
            log.warning("a process died while it loaded a version; the death counts against this version: %s", loading)
            self._write("")

    def deaths(self, identity: str) -> int:
        """Return the number of processes that died while they loaded this version (see `Resolution.identity`)."""
        return self._deaths.get(identity, 0)

    def refusal(self, identity: str) -> str | None:
        """Return why this version is refused after deaths during its loads; None if it may be loaded."""
        if (deaths := self.deaths(identity)) < LETHAL:
            return None
        return (
            f"{deaths} processes died while they loaded it; promote another version, or promote this version again to retry it"
        )

    @contextlib.contextmanager
    def loading(self, identity: str) -> Iterator[None]:
        """Record in the journal that this version is being loaded, until the `with` block ends.

        If the block ends without an error, the number of deaths of the version is reset to 0.
        """
        self._began = time.monotonic()
        self._write(identity)
        try:
            yield
            self._deaths.pop(identity, None)
        finally:
            self._began = None
            self._write("")

    def age_seconds(self) -> float:
        """Return the time since the current load began in seconds; 0 if no version is being loaded."""
        return 0.0 if (began := self._began) is None else time.monotonic() - began

    def _write(self, loading: str) -> None:
        self._deaths = dict(list(self._deaths.items())[-REMEMBERED:])
        self._journal.write_loads(loading, self._deaths)
