"""Things outside this process that it waits for: which of them are away just now, and why."""

import logging
from typing import Any

from publisher.errors import UNREACHABLE, Fatal

log = logging.getLogger(__name__)

BROKERS, COMMITS = "brokers", "commits"
MODEL, MODEL_REGISTRY, MODEL_SERVERS, SCHEMA_REGISTRY = "model", "model-registry", "model-servers", "schema-registry"
KINDS = (BROKERS, COMMITS, MODEL, MODEL_REGISTRY, MODEL_SERVERS, SCHEMA_REGISTRY)


class DependencyUnavailable(Fatal):
    """Something does not answer. A command ends with code 4; a scorer that runs waits, and does the same again later. `what` is
    one of KINDS. Asking again makes no sense for `retry_seconds`."""

    def __init__(self, what: str, message: str, hint: str = "", retry_seconds: float = 1.0) -> None:
        super().__init__(message, hint, UNREACHABLE)
        self.what = what
        self.retry_seconds = retry_seconds

    def __reduce__(self) -> tuple[Any, ...]:
        """As it travels from one process to another."""
        return DependencyUnavailable, (self.what, str(self), self.hint, self.retry_seconds)


def schema_registry_unavailable(url: str | None, error: Exception) -> DependencyUnavailable:
    """Nobody answers there, or nobody who is a schema registry."""
    return DependencyUnavailable(
        SCHEMA_REGISTRY, f"schema registry {url} does not answer: {error}", "check schema_registry.url"
    )


class Outages:
    """For one scorer; any thread may tell. A line in the log when something goes away, and one when it is back."""

    def __init__(self) -> None:
        self.away: dict[str, str] = {}
        self._goes_on: set[str] = set()

    def begin(self, what: str, error: Exception | str, *, goes_on: bool = False) -> None:
        """`what` is away. `goes_on`: the scorer can do its work without it."""
        if what not in self.away or goes_on > (what in self._goes_on):
            hint = f" ({error.hint})" if isinstance(error, Fatal) and error.hint else ""
            log.warning("%s: %s%s; %s", what, error, hint, "scoring goes on without it" if goes_on else "waiting")
        (self._goes_on.add if goes_on else self._goes_on.discard)(what)
        self.away[what] = str(error)

    def end(self, what: str) -> None:
        """It is there, as far as is known."""
        if self.away.pop(what, None) is not None:
            log.info("%s: back again", what)

    def is_away(self, what: str) -> bool:
        return what in self.away

    def told(self) -> str | None:
        """What the scorer waits for, in one line; None where nothing holds it up."""
        return "; ".join(f"{what}: {why}" for what, why in list(self.away.items()) if what not in self._goes_on) or None
