"""Dead letters for unexpected exceptions of the scorer's own code or of its libraries, and the log of their tracebacks."""

import logging
import traceback

from scorer.dead_letters.reasons import Poison, Reason

OURS = {"scorer", "publisher", "model_registry"}
LONGEST = 500  # maximum number of characters of an exception's message in the dead letter
MOST_LOGGED = 1_000

log = logging.getLogger(__name__)


class InternalErrorLog:
    """Log of unexpected exceptions. It writes one traceback per type of exception and location in our code."""

    def __init__(self) -> None:
        self._logged: set[tuple[type, str]] = set()

    def poison(self, error: Exception) -> Poison:
        """Return the Poison of an event that caused an unexpected exception, and log the traceback unless it was logged before.

        The error consists of the exception's type, its location in our code, and its message.
        """
        lines = [(frame.f_globals.get("__name__", ""), line) for frame, line in traceback.walk_tb(error.__traceback__)]
        module, line = [(name, line) for name, line in lines if name.partition(".")[0] in OURS][-1]
        place = f"{module.replace('.', '/')}.py:{line}"
        if (type(error), place) not in self._logged and len(self._logged) < MOST_LOGGED:
            self._logged.add((type(error), place))
            log.error("an event is dead-lettered because of %s at %s", type(error).__name__, place, exc_info=error)
        return Poison(Reason.INTERNAL_ERROR, f"{type(error).__name__} at {place}: {str(error)[:LONGEST]}")
