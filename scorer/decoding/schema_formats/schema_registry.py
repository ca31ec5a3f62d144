"""Cache of a registry's schemas by id. Unknown ids are looked up in threads.

The schema of an id never changes, so each schema is fetched once. If the look-up of an id fails while the registry answers
other requests, events with this id are dead-lettered. If the registry answers no request, the caller waits for the registry.
After many failed look-ups, events with further unknown ids are dead-lettered without a look-up for some seconds: a flood of
ids that no registry knows would otherwise delay all other events by one request for each id.
The HTTP requests are made by `schema_registry_client.py`.
"""

import re
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar

from publisher.errors import Fatal
from publisher.runtime.dependency_wait import schema_registry_unavailable
from scorer.dead_letters.reasons import Poison, Reason
from scorer.decoding.schema_formats.schema import LARGEST_ID, NO_ID, LookUpFailed, Schema, SchemaId
from scorer.decoding.types import LookUpsPending
from scorer.settings.input import SchemaRegistrySettings

T = TypeVar("T")
LONG_IDS = "Apicurio's serialisers write ids of 8 bytes unless apicurio.registry.as-confluent is true"
LOOK_UPS = 8
"""Maximum number of concurrent look-ups. A distant registry answers 8 concurrent requests in the time of one."""
SLICE_SECONDS = 0.5
"""Time after which `look_up` raises LookUpsPending, so that its caller can report to the watchdog that it is alive."""
HUNG_SECONDS = 20.0
"""Time limit of a look-up. It is needed because the client's time-outs do not end a response that arrives byte by byte."""
ATTEMPTS = 3
RETRY_SECONDS = 1.0
"""Attempts and interval of a look-up that fails temporarily (HTTP 500, time-out) while the registry answers other requests."""
UNKNOWN_SECONDS = 10.0
FAILED_SECONDS = 60.0
"""Time until an id is looked up again. UNKNOWN_SECONDS: the registry does not know the id. FAILED_SECONDS: other failures."""
LOOK_UP_BUDGET = 50
"""Number of look-ups that may fail within UNKNOWN_SECONDS. Until then no further look-up starts."""
MOST_FAILED = 100_000
"""Maximum number of ids whose failures are stored, which is the number of events in the largest batch."""
ERROR_CHARACTERS = 500


class SchemaClient(Protocol):
    """Requests to one registry. Both methods block until the response, and may be called from several threads at once."""

    def schema(self, schema_id: SchemaId) -> Schema:
        """Fetch a schema and the schemas that it refers to. Raises LookUpFailed."""

    def probe(self) -> None:
        """Check that the registry answers requests. Raises LookUpFailed if it answers no request."""


class _RunningLookUp(NamedTuple):
    schema_id: SchemaId
    since: float


class _RegistryProbe(NamedTuple):
    """A running probe of the registry, and the failed look-ups that preceded the probe.

    If the registry answers the probe, the failures are attributed to their ids. Otherwise the registry is unavailable.
    """

    future: "Future[None]"
    failures: dict[SchemaId, LookUpFailed]


class SchemaRegistry:
    """The cache of the schemas of one registry. `clock` returns monotonic seconds.

    Up to LOOK_UPS look-ups run at once, each in a thread. They continue between two calls of `look_up`. After a failed look-up
    the registry is probed. If the registry answers the probe, the failure is recorded for the id. Otherwise the id remains
    unknown.
    """

    def __init__(
        self,
        settings: SchemaRegistrySettings,
        client: SchemaClient | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._clients = [client] if client else []
        self._clock = clock
        self._lock = threading.Lock()
        self._schemas: dict[SchemaId, Schema] = {}
        self._failed: OrderedDict[SchemaId, tuple[float, str]] = OrderedDict()
        self._running: dict[Future[Schema], _RunningLookUp] = {}
        self._unexplained: dict[SchemaId, LookUpFailed] = {}
        self._attempts: dict[SchemaId, int] = {}
        self._retry_at: dict[SchemaId, float] = {}
        self._failure_times: deque[float] = deque(maxlen=LOOK_UP_BUDGET)
        self._probe: _RegistryProbe | None = None
        self._answered = False

    def schema(self, schema_id: SchemaId, format_: str) -> Schema:
        """Return the schema with this id. An unknown id is looked up, without a time limit.

        Raises:
            Poison: the registry has no schema with this id and format, or the look-up of the id failed.
            DependencyUnavailable: the registry answers no request.
            Fatal: the registry denies access and has never answered this process.
        """
        while (schema := self._get_schema(schema_id)) is None:
            try:
                self.look_up([schema_id])
            except LookUpsPending:
                continue
        if schema.format not in ("", format_):
            raise Poison(Reason.UNKNOWN_SCHEMA, f"{schema_id} is a schema in {schema.format}, but input.format is {format_}")
        return schema

    def look_up(self, schema_ids: Iterable[SchemaId]) -> None:
        """Look up the ids that are still unknown. After a normal return, `schema` does not wait for these ids.

        Args:
            schema_ids: the ids, those with the most events first. They are looked up in this order.

        Raises:
            LookUpsPending: the look-ups take longer than SLICE_SECONDS. The caller must call this method again.
            DependencyUnavailable: the registry answers no request.
            Fatal: the registry denies access and has never answered this process.
        """
        with self._lock:
            waiting = deque(schema_id for schema_id in dict.fromkeys(schema_ids) if self._needs_look_up(schema_id))
            until = time.monotonic() + SLICE_SECONDS
            while True:
                waiting.extend(self._take_due())
                self._reject_beyond_budget(waiting)
                self._start_look_ups(waiting)
                if not (waiting or self._running or self._unexplained or self._retry_at or self._probe):
                    return
                remaining = until - time.monotonic()
                if remaining <= 0:
                    raise LookUpsPending(
                        f"schema registry {self._url}: {len(waiting) + len(self._running)} look-ups are pending"
                    )
                self._wait(remaining)

    def _get_schema(self, schema_id: SchemaId) -> Schema | None:
        """Return the schema with this id; None if the id must be looked up.

        Raises Poison if the id is invalid, or if the look-up of the id failed recently.
        """
        if schema_id.kind == "id" and int(schema_id.value) > LARGEST_ID:  # a registry's response to such an id is arbitrary
            raise Poison(Reason.UNKNOWN_SCHEMA, f"{schema_id}: not a valid schema id (1 to {LARGEST_ID})")
        if schema_id == NO_ID:
            raise Poison(Reason.UNKNOWN_SCHEMA, f"{schema_id}: not a valid schema id (1 to {LARGEST_ID}); {LONG_IDS}")
        schema = self._schemas.get(schema_id)
        until, error = self._failed.get(schema_id, (0.0, ""))
        if schema is None and error and self._clock() < until:
            raise Poison(Reason.UNKNOWN_SCHEMA, error)
        return schema

    def _needs_look_up(self, schema_id: SchemaId) -> bool:
        """Return whether a look-up of this id must be started, because it is unknown, and no look-up runs or is scheduled."""
        try:
            is_known = self._get_schema(schema_id) is not None
        except Poison:
            return False
        running = any(look_up.schema_id == schema_id for look_up in self._running.values())
        probed = self._probe is not None and schema_id in self._probe.failures
        return not (is_known or running or probed or schema_id in self._unexplained or schema_id in self._retry_at)

    def _take_due(self) -> list[SchemaId]:
        """Remove and return the ids whose failed look-up must be repeated now."""
        now = self._clock()
        due_ids = [schema_id for schema_id, at in self._retry_at.items() if at <= now]
        for schema_id in due_ids:
            del self._retry_at[schema_id]
        return due_ids

    def _reject_beyond_budget(self, waiting: deque[SchemaId]) -> None:
        """If the budget of failed look-ups is spent, record a failure for all ids in `waiting` but the first, and remove them.

        The first id is the one with the most events of the batch. The ids of a flood differ from event to event, so this is
        the schema of a producer that has just begun to use it.
        """
        now = self._clock()
        times = self._failure_times
        if len(times) < LOOK_UP_BUDGET or now - times[0] >= UNKNOWN_SECONDS:
            return
        reason = (
            f"{LOOK_UP_BUDGET} look-ups of other ids failed within {UNKNOWN_SECONDS:.0f} s; `scorer replay` repeats the event"
        )
        while len(waiting) > 1:
            schema_id = waiting.pop()
            self._attempts.pop(schema_id, None)
            self._store_failure(schema_id, times[0] + UNKNOWN_SECONDS, f"{schema_id} was not looked up, because {reason}")

    def _start_look_ups(self, waiting: deque[SchemaId]) -> None:
        """Start look-ups of the ids in `waiting`, up to LOOK_UPS at once, and probe the registry after failed look-ups.

        If a look-up failed for another reason than an unknown id, or LOOK_UP_BUDGET look-ups failed, no look-up starts until
        the registry has answered the probe.
        """
        if self._unexplained and self._probe is None and (_must_probe(self._unexplained) or not waiting):
            self._probe = _RegistryProbe(_in_thread(self._client.probe), self._unexplained)
            self._unexplained = {}
        if self._probe is not None and _must_probe(self._probe.failures):
            return  # perhaps the registry fails, and not these ids
        while waiting and len(self._running) < LOOK_UPS:
            schema_id = waiting.popleft()
            self._running[_in_thread(partial(self._client.schema, schema_id))] = _RunningLookUp(schema_id, time.monotonic())

    def _wait(self, seconds: float) -> None:
        """Wait up to `seconds` for a response or for the next scheduled attempt, and record the responses."""
        futures: set[Future[Any]] = {*self._running, *([self._probe.future] if self._probe else [])}
        if not futures:
            time.sleep(min(seconds, max(0.0, min(self._retry_at.values(), default=0.0) - self._clock())))
            return
        done = wait(futures, seconds, FIRST_COMPLETED).done
        now = time.monotonic()
        for future, look_up in list(self._running.items()):
            if future in done or now - look_up.since > HUNG_SECONDS:
                del self._running[future]
                self._record(look_up.schema_id, future)
        if self._probe is not None and self._probe.future in done:
            probe = self._probe
            self._probe = None
            self._record_failures(probe)

    def _record(self, schema_id: SchemaId, future: "Future[Schema]") -> None:
        """Record the result of a look-up. A look-up without a result has exceeded HUNG_SECONDS, and counts as failed."""
        if not future.done():
            self._unexplained[schema_id] = LookUpFailed(f"no complete response in {HUNG_SECONDS:.0f} s")
            return
        try:
            self._schemas[schema_id] = future.result()
        except LookUpFailed as error:
            self._unexplained[schema_id] = error
        else:
            self._answered = True
            self._attempts.pop(schema_id, None)

    def _record_failures(self, probe: _RegistryProbe) -> None:
        """If the registry answered the probe, record the failed look-ups that preceded the probe.

        Otherwise forget all failures, and raise Fatal or DependencyUnavailable.
        """
        try:
            probe.future.result()
        except LookUpFailed as error:
            self._unexplained.clear()
            self._attempts.clear()
            self._retry_at.clear()
            if error.denied and not self._answered:
                raise Fatal(f"schema registry {self._url}: {error}", "check schema_registry.extra", 3) from None
            raise schema_registry_unavailable(self._url, error) from None
        self._answered = True
        for schema_id, failure in probe.failures.items():
            self._record_failure(schema_id, failure)

    def _record_failure(self, schema_id: SchemaId, failure: LookUpFailed) -> None:
        """Schedule the next look-up of an id, or record the error that dead letters with this id get."""
        attempts = self._attempts[schema_id] = self._attempts.get(schema_id, 0) + 1
        if not (failure.unknown or failure.denied) and attempts < ATTEMPTS:
            self._retry_at[schema_id] = self._clock() + RETRY_SECONDS
            return
        del self._attempts[schema_id]
        failure_kind = "does not know" if failure.unknown else "refuses" if failure.denied else f"fails {attempts} times at"
        error = f"the schema registry {failure_kind} {schema_id}: {failure}"[:ERROR_CHARACTERS]
        now = self._clock()
        self._failure_times.append(now)
        self._store_failure(schema_id, now + (UNKNOWN_SECONDS if failure.unknown else FAILED_SECONDS), error)

    def _store_failure(self, schema_id: SchemaId, until: float, error: str) -> None:
        """Dead-letter events with this id, with this error, until the given time of the clock."""
        self._failed[schema_id] = until, error
        self._failed.move_to_end(schema_id)
        if len(self._failed) > MOST_FAILED:
            self._failed.popitem(last=False)

    def open(self) -> None:
        """Create the HTTP client now. Raises Fatal if the configured properties contradict each other."""
        assert self._client

    @property
    def _client(self) -> SchemaClient:
        """The HTTP client, created at first use because its TLS context alone takes 20 ms."""
        if not self._clients:
            from scorer.decoding.schema_formats.schema_registry_client import SchemaRegistryHttpClient

            self._clients.append(SchemaRegistryHttpClient(self._settings))
        return self._clients[0]

    @property
    def _url(self) -> str:
        """The address of the registry without credentials."""
        return re.sub(r"//[^/@]*@", "//", self._settings.url or "")


def _must_probe(failures: dict[SchemaId, LookUpFailed]) -> bool:
    """Return whether these failures may have another reason than ids that the registry does not know."""
    return len(failures) >= LOOK_UP_BUDGET or any(not failure.unknown for failure in failures.values())


def _in_thread(call: Callable[[], T]) -> "Future[T]":
    """Run a call in a daemon thread, so that a request without a response does not prevent the process from exiting."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:  # noqa: BLE001 - raised where the result is taken
            future.set_exception(error)

    threading.Thread(target=run, name="schema-look-up", daemon=True).start()
    return future
