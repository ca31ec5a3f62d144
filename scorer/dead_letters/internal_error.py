"""Dead letters for unexpected exceptions in the scorer's code or in its libraries, and the log of the tracebacks."""

import logging
import traceback

from scorer.dead_letters.reasons import Poison, Reason

OURS = {"scorer", "publisher", "model_registry"}
LONGEST = 500  # maximum number of characters of an exception's message in the dead letter
MAX_LOGGED = 1_000

log = logging.getLogger(__name__)


class InternalErrorLog:
    """Log of unexpected exceptions. Exceptions of the same type from the same line of this product's code are logged once."""

    def __init__(self) -> None:
        self._logged: set[tuple[type, str]] = set()

    def poison(self, error: Exception) -> Poison:
        """Return the Poison for an event that caused an unexpected exception; log the traceback unless it was logged before."""
        # Its text has the type of the exception, its message, and the last line of the traceback in this product's code.
        lines = [(frame.f_globals.get("__name__", ""), line) for frame, line in traceback.walk_tb(error.__traceback__)]
        module, line = [(name, line) for name, line in lines if name.partition(".")[0] in OURS][-1]
        place = f"{module.replace('.', '/')}.py:{line}"
        if (type(error), place) not in self._logged and len(self._logged) < MAX_LOGGED:
            self._logged.add((type(error), place))
            log.error(
                "an event is dead-lettered: it caused an unexpected %s at %s", type(error).__name__, place, exc_info=error
            )
        return Poison(Reason.INTERNAL_ERROR, f"{type(error).__name__} at {place}: {str(error)[:LONGEST]}")
