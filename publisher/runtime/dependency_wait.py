"""The dependencies of a process: the error for an unavailable dependency, the current outages, and the wait for their end.

A process that waits for a dependency stays alive, stops when asked to, and retries without a limit. The module uses no Kafka
client: the caller passes a function that probes the brokers.
"""

# If the process ended instead, its supervisor would restart it with growing delays.

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any, TypeVar

from publisher.errors import UNREACHABLE, Aborted, Fatal
from publisher.runtime.abandonable_call import call_in_thread
from publisher.runtime.context import Context

log = logging.getLogger(__name__)

BROKERS = "brokers"
COMMITS = "commits"
DISK = "disk"
MODEL = "model"
MODEL_REGISTRY = "model-registry"
MODEL_SERVERS = "model-servers"
SCHEMA_REGISTRY = "schema-registry"
KINDS = (BROKERS, COMMITS, DISK, MODEL, MODEL_REGISTRY, MODEL_SERVERS, SCHEMA_REGISTRY)

PROBE_INTERVAL_SECONDS = 5.0  # between probes of the brokers during a wait
RETRY_SECONDS = 1.0
STOP_SECONDS = 0.1  # between two checks whether a stop is requested

T = TypeVar("T")


class DependencyUnavailable(Fatal):
    """A dependency does not answer. A command ends with code 4; a running scorer waits and retries.

    Attributes:
        dependency: the dependency, one of KINDS.
        retry_seconds: how long to wait before a retry.
    """

    def __init__(self, dependency: str, message: str, hint: str = "", retry_seconds: float = 1.0) -> None:
        super().__init__(message, hint, UNREACHABLE)
        self.dependency = dependency
        self.retry_seconds = retry_seconds

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the error for another process by its constructor arguments."""
        return DependencyUnavailable, (self.dependency, str(self), self.hint, self.retry_seconds)


def schema_registry_unavailable(url: str | None, error: Exception) -> DependencyUnavailable:
    """Return the error for a URL at which no schema registry answers."""
    message = f"schema registry {url} does not answer: {error}"
    return DependencyUnavailable(SCHEMA_REGISTRY, message, "check schema_registry.url")


class Outages:
    """The current outages of one scorer, by dependency. Any thread may report them.

    The log has a line when an outage begins and when it ends.
    """

    def __init__(self) -> None:
        self.active: dict[str, str] = {}
        self._optional: set[str] = set()

    def begin(self, dependency: str, error: Exception | str, *, optional: bool = False) -> None:
        """Record an outage of `dependency`. If the dependency is `optional`, the scorer scores without it."""
        if dependency not in self.active or optional > (dependency in self._optional):
            hint = f" ({error.hint})" if isinstance(error, Fatal) and error.hint else ""
            log.warning("%s: %s%s; %s", dependency, error, hint, "scoring continues without it" if optional else "waiting")
        if optional:
            self._optional.add(dependency)
        else:
            self._optional.discard(dependency)
        self.active[dependency] = str(error)

    def end(self, dependency: str) -> None:
        """Record that the outage of `dependency` has ended, if there is one."""
        if self.active.pop(dependency, None) is not None:
            log.info("%s: the outage has ended", dependency)

    def is_unavailable(self, dependency: str) -> bool:
        """Return whether `dependency` has an outage."""
        return dependency in self.active

    def summary(self) -> str | None:
        """Return one line about the outages that block the scorer; None if there are none."""
        waited_for = [
            f"{dependency}: {error}" for dependency, error in list(self.active.items()) if dependency not in self._optional
        ]
        return "; ".join(waited_for) or None


class DependencyWaiter:
    """Lets the main thread of one scorer wait for its dependencies, and probes the brokers during the wait.

    The main thread passes `context` to functions that may have to wait, and they call `context.check` repeatedly. The check
    raises an error that waiting does not cure, such as a rejected login.

    Args:
        probe_brokers: connects to a broker. Raises Fatal, with the exit code UNREACHABLE if no broker answers.
        beat: reports that the main thread makes progress.
        outages: the outages to update.
        stopping: set when the scorer is asked to stop.
    """

    # During the wait, a background thread probes the brokers, and records in `outages` whether a broker answers.

    def __init__(
        self, probe_brokers: Callable[[], object], beat: Callable[[], object], outages: Outages, stopping: threading.Event
    ) -> None:
        self.context = Context(beat=beat, raise_if_cancelled=self._raise_if_cancelled)
        self._probe_brokers = probe_brokers
        self._outages = outages
        self._stopping = stopping
        self._next_probe = time.monotonic() + PROBE_INTERVAL_SECONDS
        self._probe: Future[None] | None = None
        self._rejected: Fatal | None = None

    def start_probe(self) -> None:
        """Start a background probe of the brokers unless one is running. It retries until a broker answers."""
        if self._probe is None or self._probe.done():
            self._probe = call_in_thread("brokers", self._probe_until_available)

    def wait_for(self, future: Future[T]) -> T:
        """Wait for a step of the start-up that runs in a thread of its own, and return its result.

        Raises:
            Aborted: if a stop is requested. The step's thread is abandoned.
            Exception: any error of the step.
        """
        while not wait([future], STOP_SECONDS).done:
            self.context.check()
        return future.result()

    def retry_until_available(self, step: Callable[[], T]) -> T:
        """Run a step of the start-up, and repeat it while a dependency is unavailable. Returns its result.

        Raises:
            Aborted: if a stop is requested.
            Fatal: if the step raises an error that an operator must correct.
        """
        while True:
            try:
                result = self.wait_for(call_in_thread("start", step))
            except Fatal as error:
                if error.exit_code != UNREACHABLE:
                    raise
                dependency = error.dependency if isinstance(error, DependencyUnavailable) else BROKERS
                self._outages.begin(dependency, error)
                self._stopping.wait(RETRY_SECONDS)
                self.context.check()
            else:
                for dependency in list(self._outages.active):
                    self._outages.end(dependency)
                return result

    def _raise_if_cancelled(self) -> None:
        if self._stopping.is_set():
            raise Aborted(
                "a stop was requested during a wait; the next owner of the transactional id ends the open transaction"
            )
        if self._rejected is not None:
            raise self._rejected
        now = time.monotonic()
        if now >= self._next_probe:
            self._next_probe = now + PROBE_INTERVAL_SECONDS
            self.start_probe()

    def _probe_until_available(self) -> None:
        while not self._stopping.is_set():
            try:
                self._probe_brokers()
            except Fatal as error:
                if error.exit_code != UNREACHABLE:
                    self._rejected = error
                    return
                self._outages.begin(BROKERS, error)
                self._stopping.wait(RETRY_SECONDS)
            else:
                self._outages.end(BROKERS)
                return
