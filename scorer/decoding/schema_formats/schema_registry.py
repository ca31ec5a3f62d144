"""Cache of a registry's schemas by id, which looks up unknown ids in threads.

A schema never changes under its id, so each is fetched once. If a look-up fails while the registry answers other requests, the
id counts as failed and the events with that id are dead-lettered. Only a registry that answers no request is waited for. This
module makes no HTTP requests: see `schema_registry_client.py`.
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
from publisher.runtime.dependencies import schema_registry_unavailable
from scorer.dead_letters.reasons import Poison, Reason
from scorer.decoding.schema_formats.schema import LARGEST_ID, NO_ID, LookUpFailed, Schema, SchemaId
from scorer.decoding.types import LookUpsPending
from scorer.settings.input import SchemaRegistrySettings

T = TypeVar("T")
LONG_IDS = "Apicurio's serialisers write ids of 8 bytes unless apicurio.registry.as-confluent is true"
LOOK_UPS = 8
"""Concurrent requests: a registry on another continent answers 8 of them in the time of one."""
SLICE_SECONDS = 0.5
"""Time after which a waiting caller must report that it is alive, far less than the watchdog allows."""
HUNG_SECONDS = 20.0
"""Time after which a look-up has failed: the client's time-outs do not end a response that arrives byte by byte."""
ATTEMPTS = 3
RETRY_SECONDS = 1.0
"""Attempts and interval of a look-up that fails temporarily, such as with 500 or a time-out, while others are answered."""
UNKNOWN_SECONDS = 10.0
FAILED_SECONDS = 60.0
"""Time until an id is looked up again: an unknown id, which may be registered later, and an id whose look-up fails."""
MOST_FAILED = 100_000
"""Limit of the ids whose failures are stored: as many as the largest batch has events."""
ERROR_CHARACTERS = 500


class SchemaClient(Protocol):
    """Requests to one registry. Both calls block, and may be made from several threads at once."""

    def schema(self, schema_id: SchemaId) -> Schema:
        """Fetch a schema with its references. Raises LookUpFailed."""

    def probe(self) -> None:
        """Request something that any registry answers. Raises LookUpFailed if the registry answers no request."""


class _RunningLookUp(NamedTuple):
    schema_id: SchemaId
    since: float


class _RegistryProbe(NamedTuple):
    """A running probe, and the failures that happened before it."""

    future: "Future[None]"
    failures: dict[SchemaId, LookUpFailed]


class SchemaRegistry:
    """The schemas of one registry. `clock` returns monotonic seconds.

    Look-ups run in threads of their own, LOOK_UPS at once, and continue between two calls. Failures wait for a probe. If the
    registry answers the probe, the ids count as failed; if not, the ids remain unknown.
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
        self._probe: _RegistryProbe | None = None
        self._answered = False

    def schema(self, schema_id: SchemaId, format_: str) -> Schema:
        """Return the schema with that id; look it up if necessary, without a time limit.

        Raises:
            Poison: the registry has no schema of that id and format.
            DependencyUnavailable: the registry answers no request.
            Fatal: the registry rejects every request.
        """
        while (schema := self._get_schema(schema_id)) is None:
            try:
                self.look_up([schema_id])
            except LookUpsPending:
                continue
        if schema.format not in ("", format_):
            raise Poison(Reason.UNKNOWN_SCHEMA, f"{schema_id} is {schema.format}, not {format_}")
        return schema

    def look_up(self, schema_ids: Iterable[SchemaId]) -> None:
        """Look up those ids that are still unknown; `schema` then returns or raises at once.

        Raises:
            LookUpsPending: the look-ups take longer than SLICE_SECONDS; call again.
            DependencyUnavailable: the registry answers no request.
            Fatal: the registry rejects every request and has never answered this process.
        """
        with self._lock:
            waiting = deque(schema_id for schema_id in dict.fromkeys(schema_ids) if self._needs_look_up(schema_id))
            until = time.monotonic() + SLICE_SECONDS
            while True:
                waiting.extend(self._take_due())
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
        """Return the schema, or None if the id must be looked up. Raises Poison if a recent look-up failed."""
        if schema_id.kind == "id" and int(schema_id.value) > LARGEST_ID:  # a registry's response to such an id is arbitrary
            raise Poison(Reason.UNKNOWN_SCHEMA, f"{schema_id}: no registry has such an id")
        if schema_id == NO_ID:
            raise Poison(Reason.UNKNOWN_SCHEMA, f"{schema_id}: no registry has such an id; {LONG_IDS}")
        schema = self._schemas.get(schema_id)
        until, error = self._failed.get(schema_id, (0.0, ""))
        if schema is None and error and self._clock() < until:
            raise Poison(Reason.UNKNOWN_SCHEMA, error)
        return schema

    def _needs_look_up(self, schema_id: SchemaId) -> bool:
        """Return whether an id is unknown and no look-up of it is running or due."""
        try:
            is_known = self._get_schema(schema_id) is not None
        except Poison:
            return False
        running = any(look_up.schema_id == schema_id for look_up in self._running.values())
        probed = self._probe is not None and schema_id in self._probe.failures
        return not (is_known or running or probed or schema_id in self._unexplained or schema_id in self._retry_at)

    def _take_due(self) -> list[SchemaId]:
        """Remove and return the failed ids whose next attempt is due."""
        now = self._clock()
        due_ids = [schema_id for schema_id, at in self._retry_at.items() if at <= now]
        for schema_id in due_ids:
            del self._retry_at[schema_id]
        return due_ids

    def _start_look_ups(self, waiting: deque[SchemaId]) -> None:
        """Start as many look-ups as may run at once, and the probe if failures need one."""
        urgent = any(not failure.unknown for failure in self._unexplained.values())
        if self._unexplained and self._probe is None and (urgent or not waiting):
            self._probe = _RegistryProbe(_in_thread(self._client.probe), self._unexplained)
            self._unexplained = {}
        if self._probe is not None and any(not failure.unknown for failure in self._probe.failures.values()):
            return  # perhaps the registry fails, and not these ids
        while waiting and len(self._running) < LOOK_UPS:
            schema_id = waiting.popleft()
            self._running[_in_thread(partial(self._client.schema, schema_id))] = _RunningLookUp(schema_id, time.monotonic())

    def _wait(self, seconds: float) -> None:
        """Wait for a response or until the next attempt is due, and record the responses."""
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
        """Record the result of a look-up."""
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
        """Record the failures of the ids if the probe was answered. Raises DependencyUnavailable or Fatal if it was not."""
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
        """Schedule the next attempt for an id, or record the error with which its events are dead-lettered."""
        attempts = self._attempts[schema_id] = self._attempts.get(schema_id, 0) + 1
        if not (failure.unknown or failure.denied) and attempts < ATTEMPTS:
            self._retry_at[schema_id] = self._clock() + RETRY_SECONDS
            return
        del self._attempts[schema_id]
        failure_kind = "does not know" if failure.unknown else "refuses" if failure.denied else f"fails {attempts} times at"
        error = f"the schema registry {failure_kind} {schema_id}: {failure}"[:ERROR_CHARACTERS]
        self._failed[schema_id] = self._clock() + (UNKNOWN_SECONDS if failure.unknown else FAILED_SECONDS), error
        self._failed.move_to_end(schema_id)
        if len(self._failed) > MOST_FAILED:
            self._failed.popitem(last=False)

    def open(self) -> None:
        """Create the client. Raises Fatal if its properties contradict each other."""
        assert self._client

    @property
    def _client(self) -> SchemaClient:
        """The client, created at first use: its TLS context alone takes 20 ms."""
        if not self._clients:
            from scorer.decoding.schema_formats.schema_registry_client import SchemaRegistryHttpClient

            self._clients.append(SchemaRegistryHttpClient(self._settings))
        return self._clients[0]

    @property
    def _url(self) -> str:
        """The address without credentials."""
        return re.sub(r"//[^/@]*@", "//", self._settings.url or "")


def _in_thread(call: Callable[[], T]) -> "Future[T]":
    """Run a call in a daemon thread, so that a request that hangs does not prevent the process from exiting."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:  # noqa: BLE001 - raised where the result is taken
            future.set_exception(error)

    threading.Thread(target=run, name="schema-look-up", daemon=True).start()
    return future
