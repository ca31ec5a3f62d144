"""Cache of a registry's schemas by id. Unknown ids are looked up in threads.

The schema of an id never changes, so each schema is fetched once. If the look-up of an id fails while the registry answers
other requests, events with this id are dead-lettered. If the registry answers no request, the caller waits for the registry.

The scorer answers the records of a partition in order, so pending look-ups delay all other events. If many events have ids that
the registry does not know (a flood of ids), the delay would be long. To limit the delay, the cache stops looking up unknown ids
after a number of failed look-ups (the budget), and the events with these ids are dead-lettered. The ids of a flood differ from
event to event, but the id of a registered schema repeats. Therefore the cache still looks up the most frequent of these ids.

The HTTP requests are made by `schema_registry_client.py`.
"""

import re
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
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
"""Interval between up to ATTEMPTS look-ups of one id.

A look-up is repeated if it fails temporarily (HTTP 500, time-out) while the registry answers other requests.
"""
UNKNOWN_SECONDS = 10.0
FAILED_SECONDS = 60.0
"""Seconds until an id is looked up again: UNKNOWN_SECONDS if the registry does not know the id, else FAILED_SECONDS."""
LOOK_UP_BUDGET = 50
SINGLE_BUDGET = LOOK_UPS
"""Budgets. If this number of look-ups has failed within UNKNOWN_SECONDS, a further id is looked up only as an exception.

SINGLE_BUDGET applies to an id with a single event in the batch, so that a flood of ids that all differ delays a batch by only
one round of concurrent look-ups. LOOK_UP_BUDGET applies to all other ids.
"""
SKIPPED_SECONDS = 1.0
"""Time until an id that was not looked up, because its budget was spent, counts as unknown again."""
EXCEPTION_SECONDS = 0.1
"""Minimum time from the last failed look-up to the exceptional look-up of an id with a single event; see SINGLE_BUDGET."""
MAX_FAILED = 100_000
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


class _Failure(NamedTuple):
    """The reason why events with a certain schema id are dead-lettered.

    Attributes:
        until: the monotonic time in seconds from which the id may be looked up again.
        error: the error text that the dead letters of these events have.
        skipped_events: 0 if the look-up of the id failed. If the id was not looked up because its budget was spent, the number
            of events with this id in the batch.
    """

    until: float
    error: str
    skipped_events: int = 0


class _RegistryProbe(NamedTuple):
    """A running probe of the registry, and the failed look-ups that preceded the probe.

    If the registry answers the probe, the ids are the cause of the failures. Otherwise the registry is unavailable.
    """

    future: "Future[None]"
    failures: dict[SchemaId, LookUpFailed]


class SchemaRegistry:
    """The cache of the schemas of one registry. `clock` returns monotonic seconds.

    Up to LOOK_UPS look-ups run at once, each in a thread. They continue between two calls of `look_up`. After a failed look-up,
    the cache probes the registry with another request. If the registry answers the probe, the id is the cause of the failure,
    and the cache records the failure. Otherwise the registry is unavailable, and the id remains unknown.
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
        self._failed: OrderedDict[SchemaId, _Failure] = OrderedDict()
        self._running: dict[Future[Schema], _RunningLookUp] = {}
        self._unexplained: dict[SchemaId, LookUpFailed] = {}
        self._attempts: dict[SchemaId, int] = {}
        self._retry_at: dict[SchemaId, float] = {}
        self._failure_times: deque[float] = deque(maxlen=LOOK_UP_BUDGET)
        self._probe: _RegistryProbe | None = None
        self._answered = False

    def schema(self, schema_id: SchemaId, format_: str) -> Schema:
        """Return the schema with this id. If the id is unknown, look it up and wait, without a time limit.

        Raises:
            Poison: the registry has no schema with this id and format, or the look-up of the id failed.
            DependencyUnavailable: the registry answers no request.
            Fatal: the registry denies access and has never answered this process.
        """
        while (schema := self._get_schema(schema_id)) is None:
            try:
                self.look_up({schema_id: 1})
            except LookUpsPending:
                continue
        if schema.format not in ("", format_):
            raise Poison(Reason.UNKNOWN_SCHEMA, f"{schema_id} is a schema in {schema.format}, but input.format is {format_}")
        return schema

    def look_up(self, events: Mapping[SchemaId, int]) -> None:
        """Look up the schemas of the ids that are still unknown. `events` has the number of events with each id.

        If this method returns without an error, `schema` then returns or raises at once for each of these ids.
        """
        with self._lock:
            unknown = [schema_id for schema_id, count in events.items() if self._needs_look_up(schema_id, count)]
            waiting = deque(sorted(unknown, key=lambda schema_id: (-events[schema_id], not self._was_skipped(schema_id))))
            until = time.monotonic() + SLICE_SECONDS
            while True:
                waiting.extend(self._take_due())
                self._skip_beyond_budget(waiting, events)
                self._start_look_ups(waiting, events)
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
            raise Poison(Reason.UNKNOWN_SCHEMA, f"{schema_id} cannot exist: ids are 1 to {LARGEST_ID}")
        if schema_id == NO_ID:
            raise Poison(Reason.UNKNOWN_SCHEMA, f"{schema_id} cannot exist: ids are 1 to {LARGEST_ID}; {LONG_IDS}")
        schema = self._schemas.get(schema_id)
        failure = self._failed.get(schema_id)
        if schema is None and failure is not None and self._clock() < failure.until:
            raise Poison(Reason.UNKNOWN_SCHEMA, failure.error)
        return schema

    def _needs_look_up(self, schema_id: SchemaId, events: int) -> bool:
        """Return whether to start a look-up of this id: its schema is unknown, and no look-up of the id runs or is scheduled.

        `events` is the number of events with the id in the current batch. An id that was skipped in an earlier batch, because
        its budget was spent, counts as unknown again if the current batch has more events with the id.
        """
        try:
            is_known = self._get_schema(schema_id) is not None
        except Poison:
            failure = self._failed.get(schema_id)
            is_known = failure is None or not 0 < failure.skipped_events < events
        running = any(look_up.schema_id == schema_id for look_up in self._running.values())
        probed = self._probe is not None and schema_id in self._probe.failures
        return not (is_known or running or probed or schema_id in self._unexplained or schema_id in self._retry_at)

    def _was_skipped(self, schema_id: SchemaId) -> bool:
        """Return whether events with this schema id were dead-lettered because too many look-ups of unknown ids had failed."""
        failure = self._failed.get(schema_id)
        return failure is not None and failure.skipped_events > 0

    def _take_due(self) -> list[SchemaId]:
        """Remove and return the ids whose failed look-up must be repeated now."""
        now = self._clock()
        due_ids = [schema_id for schema_id, at in self._retry_at.items() if at <= now]
        for schema_id in due_ids:
            del self._retry_at[schema_id]
        return due_ids

    def _recent_failures(self) -> int:
        """Return the number of look-ups that failed within UNKNOWN_SECONDS; at most LOOK_UP_BUDGET."""
        now = self._clock()
        return sum(now - failed_at < UNKNOWN_SECONDS for failed_at in self._failure_times)

    def _skip_beyond_budget(self, waiting: deque[SchemaId], events: Mapping[SchemaId, int]) -> None:
        """Remove from `waiting` the ids with a spent budget (see `_budget`), and record a failure for each removed id.

        The first of these ids is an exception: it stays in `waiting` and is looked up. If it has a single event, it stays only
        if the last failed look-up was at least EXCEPTION_SECONDS ago.

        The caller has sorted `waiting` by the number of events, largest first. Among ids with the same number, ids that were
        removed before come first. The first id is the most likely to be registered, because the ids of a flood differ from
        event to event.
        """
        failures = self._recent_failures()
        beyond = [schema_id for schema_id in waiting if failures >= _budget(events.get(schema_id, 1))]
        if not beyond:
            return
        now = self._clock()
        if events.get(beyond[0], 1) > 1 or now - self._failure_times[-1] >= EXCEPTION_SECONDS:
            beyond = beyond[1:]
        reason = f"{failures} look-ups of other ids failed within {UNKNOWN_SECONDS:.0f} s; `scorer replay` repeats the event"
        for schema_id in beyond:
            self._attempts.pop(schema_id, None)
            error = f"{schema_id} was not looked up, because {reason}"
            self._store_failure(schema_id, _Failure(now + SKIPPED_SECONDS, error, events.get(schema_id, 1)))
        skipped = set(beyond)
        remaining = [schema_id for schema_id in waiting if schema_id not in skipped]
        waiting.clear()
        waiting.extend(remaining)

    def _start_look_ups(self, waiting: deque[SchemaId], events: Mapping[SchemaId, int]) -> None:
        """Start look-ups of the ids in `waiting`, at most LOOK_UPS at once, and probe the registry after failed look-ups.

        Look-ups wait in two cases:
        - A look-up failed for another reason than an unknown id, or LOOK_UP_BUDGET look-ups failed. Then no look-up starts
          until the registry has answered the probe.
        - Other look-ups have no recorded result yet, and the budget of the next id would be spent if all of them failed. Then
          the look-up of this id does not start until results are recorded.
        """
        blocked = not waiting or self._may_spend_budget(_budget(events.get(waiting[0], 1)))
        is_due = _must_probe(self._unexplained) or (blocked and not self._running)
        if self._unexplained and self._probe is None and is_due:
            self._probe = _RegistryProbe(_in_thread(self._client.probe), self._unexplained)
            self._unexplained = {}
        if self._probe is not None and _must_probe(self._probe.failures):
            return  # perhaps the registry fails, and not these ids
        while waiting and len(self._running) < LOOK_UPS:
            if self._may_spend_budget(_budget(events.get(waiting[0], 1))):
                return
            schema_id = waiting.popleft()
            self._running[_in_thread(partial(self._client.schema, schema_id))] = _RunningLookUp(schema_id, time.monotonic())

    def _may_spend_budget(self, budget: int) -> bool:
        """Return whether look-ups without a recorded result exist and would spend this budget if all of them failed."""
        probed = 0 if self._probe is None else len(self._probe.failures)
        without_result = len(self._running) + len(self._unexplained) + probed
        return without_result > 0 and self._recent_failures() + without_result >= budget

    def _wait(self, seconds: float) -> None:
        """Wait up to `seconds` for a response of the registry or for the next scheduled look-up, and record the responses."""
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
        """Record the result of a look-up. A look-up without a result has exceeded HUNG_SECONDS, and is recorded as failed."""
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
        """Record the failures of the look-ups that preceded a completed probe, if the registry has answered the probe.

        Otherwise forget all pending failures. Raise Fatal if the registry denies access and has never answered this process,
        else DependencyUnavailable.
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
        """Schedule another look-up of an id, or record its failure, so that the events with the id are dead-lettered.

        The failure is recorded if the registry does not know the id or denies access to it, or if the last of ATTEMPTS look-ups
        failed.
        """
        attempts = self._attempts[schema_id] = self._attempts.get(schema_id, 0) + 1
        if not (failure.unknown or failure.denied) and attempts < ATTEMPTS:
            self._retry_at[schema_id] = self._clock() + RETRY_SECONDS
            return
        del self._attempts[schema_id]
        failure_kind = "does not know" if failure.unknown else "refuses" if failure.denied else f"failed {attempts} times for"
        error = f"the schema registry {failure_kind} {schema_id}: {failure}"[:ERROR_CHARACTERS]
        now = self._clock()
        self._failure_times.append(now)
        until = now + (UNKNOWN_SECONDS if failure.unknown else FAILED_SECONDS)
        self._store_failure(schema_id, _Failure(until, error))

    def _store_failure(self, schema_id: SchemaId, failure: _Failure) -> None:
        """Store the reason why events with this id are dead-lettered; if too many reasons are stored, remove the oldest."""
        self._failed[schema_id] = failure
        self._failed.move_to_end(schema_id)
        if len(self._failed) > MAX_FAILED:
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


def _budget(events: int) -> int:
    """Return the budget of an id that has this number of events in a batch.

    The budget is spent when this number of look-ups, of any ids, has failed within UNKNOWN_SECONDS.
    """
    return SINGLE_BUDGET if events == 1 else LOOK_UP_BUDGET


def _must_probe(failures: dict[SchemaId, LookUpFailed]) -> bool:
    """Return whether to probe the registry: too many look-ups failed, or one failed for another reason than an unknown id."""
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
