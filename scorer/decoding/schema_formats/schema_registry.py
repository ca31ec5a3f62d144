"""Schemas by their id in a schema registry: what is known of each id, and the look-ups of unknown ids.

A schema never changes under its id, so each is fetched once. A failed look-up is the fault of its id as long as the registry
answers other requests: then the events with that id are dead letters. Only a registry that answers nothing is waited for.
No HTTP in here: see `schema_registry_client.py`.
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
"""Requests at once: a registry on another continent answers 8 of them in the time of one."""
SLICE_SECONDS = 0.5
"""How long a caller waits before it must report that it is alive, far less than the watchdog allows."""
HUNG_SECONDS = 20.0
"""A look-up that takes longer has failed: client time-outs do not end a response that comes byte by byte."""
ATTEMPTS, RETRY_SECONDS = 3, 1.0
"""Of a look-up that fails for a reason that may pass, such as 500 or a time-out, while other requests are answered."""
UNKNOWN_SECONDS, FAILED_SECONDS = 10.0, 60.0
"""How long an id is not looked up again: one that does not exist, which may be registered late, and one that fails."""
MOST_FAILED = 100_000
"""Ids of which failures are kept: as many as the largest batch has events."""
ERROR_CHARACTERS = 500


class SchemaClient(Protocol):
    """Requests to one registry. Both calls block, and may be made from several threads at once."""

    def schema(self, schema_id: SchemaId) -> Schema:
        """Fetch a schema with its references. Raises LookUpFailed."""

    def probe(self) -> None:
        """Ask for something that any registry answers. Raises LookUpFailed if it answers nothing."""


class _RunningLookUp(NamedTuple):
    schema_id: SchemaId
    since: float


class _RegistryProbe(NamedTuple):
    """A running probe, and the failures that happened before it."""

    future: "Future[None]"
    failures: dict[SchemaId, LookUpFailed]


class SchemaRegistry:
    """A registry's schemas. `clock` is monotonic seconds.

    Look-ups run in threads of their own, LOOK_UPS at once, and go on between two calls. Failures wait for a probe: if it is
    answered, each failure is its id's; if not, nothing is known of the ids.
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
        """Return the schema with that id, looking it up if need be, however long it takes.

        Raises Poison if there is none of that format, Away if the registry answers nothing, Fatal if it rejects everything.
        """
        while (schema := self._known(schema_id)) is None:
            try:
                self.look_up([schema_id])
            except LookUpsPending:
                continue
        if schema.format not in ("", format_):
            raise Poison(Reason.UNKNOWN_SCHEMA, f"{schema_id} is {schema.format}, not {format_}")
        return schema

    def look_up(self, wanted: Iterable[SchemaId]) -> None:
        """Look up these ids, those of them that are not known yet; `schema` then returns or raises at once.

        Raises LookUpsPending if that takes longer than SLICE_SECONDS: call again. Raises Away if the registry answers nothing,
        Fatal if it rejects everything and has never answered this process.
        """
        with self._lock:
            waiting = deque(one for one in dict.fromkeys(wanted) if self._is_open(one))
            until = time.monotonic() + SLICE_SECONDS
            while True:
                waiting.extend(self._due())
                self._start(waiting)
                if not (waiting or self._running or self._unexplained or self._retry_at or self._probe):
                    return
                left = until - time.monotonic()
                if left <= 0:
                    raise LookUpsPending(f"schema registry {self._url}: {len(waiting) + len(self._running)} look-ups to go")
                self._wait(left)

    def _known(self, schema_id: SchemaId) -> Schema | None:
        """Return the schema, or None if the id has to be looked up. Raises Poison if that failed lately."""
        if schema_id.kind == "id" and int(schema_id.value) > LARGEST_ID:  # a registry may answer such a question with anything
            raise Poison(Reason.UNKNOWN_SCHEMA, f"{schema_id}: no registry has such an id")
        if schema_id == NO_ID:
            raise Poison(Reason.UNKNOWN_SCHEMA, f"{schema_id}: no registry has such an id; {LONG_IDS}")
        schema = self._schemas.get(schema_id)
        until, error = self._failed.get(schema_id, (0.0, ""))
        if schema is None and error and self._clock() < until:
            raise Poison(Reason.UNKNOWN_SCHEMA, error)
        return schema

    def _is_open(self, schema_id: SchemaId) -> bool:
        """Whether nothing is known of an id, and no look-up of it is running."""
        try:
            known = self._known(schema_id) is not None
        except Poison:
            return False
        running = any(one.schema_id == schema_id for one in self._running.values())
        probed = self._probe is not None and schema_id in self._probe.failures
        return not (known or running or probed or schema_id in self._unexplained or schema_id in self._retry_at)

    def _due(self) -> list[SchemaId]:
        """Take the ids that failed and are to be looked up again now."""
        now = self._clock()
        due = [schema_id for schema_id, at in self._retry_at.items() if at <= now]
        for schema_id in due:
            del self._retry_at[schema_id]
        return due

    def _start(self, waiting: deque[SchemaId]) -> None:
        """Start as many look-ups as may run at once, and the probe if failures need one."""
        urgent = any(not failure.unknown for failure in self._unexplained.values())
        if self._unexplained and self._probe is None and (urgent or not waiting):
            self._probe = _RegistryProbe(_in_thread(self._client.probe), self._unexplained)
            self._unexplained = {}
        if self._probe is not None and any(not failure.unknown for failure in self._probe.failures.values()):
            return  # it may be the registry that fails, and not these ids
        while waiting and len(self._running) < LOOK_UPS:
            schema_id = waiting.popleft()
            self._running[_in_thread(partial(self._client.schema, schema_id))] = _RunningLookUp(schema_id, time.monotonic())

    def _wait(self, seconds: float) -> None:
        """Wait for an answer, or until a look-up is to be repeated, and take in what came."""
        asked: set[Future[Any]] = {*self._running, *([self._probe.future] if self._probe else [])}
        if not asked:
            time.sleep(min(seconds, max(0.0, min(self._retry_at.values(), default=0.0) - self._clock())))
            return
        done = wait(asked, seconds, FIRST_COMPLETED).done
        now = time.monotonic()
        for future, one in list(self._running.items()):
            if future in done or now - one.since > HUNG_SECONDS:
                del self._running[future]
                self._note(one.schema_id, future)
        if self._probe is not None and self._probe.future in done:
            probe, self._probe = self._probe, None
            self._explain(probe)

    def _note(self, schema_id: SchemaId, future: "Future[Schema]") -> None:
        """Keep the outcome of a look-up."""
        if not future.done():
            self._unexplained[schema_id] = LookUpFailed(f"no whole answer in {HUNG_SECONDS:.0f} s")
            return
        try:
            self._schemas[schema_id] = future.result()
        except LookUpFailed as error:
            self._unexplained[schema_id] = error
        else:
            self._answered = True
            self._attempts.pop(schema_id, None)

    def _explain(self, probe: _RegistryProbe) -> None:
        """Blame the ids for their failures if the registry answers the probe. Raises Away or Fatal if it does not."""
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
            self._blame(schema_id, failure)

    def _blame(self, schema_id: SchemaId, failure: LookUpFailed) -> None:
        """Look the id up again later, or note that its events are dead letters."""
        attempts = self._attempts[schema_id] = self._attempts.get(schema_id, 0) + 1
        if not (failure.unknown or failure.denied) and attempts < ATTEMPTS:
            self._retry_at[schema_id] = self._clock() + RETRY_SECONDS
            return
        del self._attempts[schema_id]
        does = "does not know" if failure.unknown else "refuses" if failure.denied else f"fails {attempts} times at"
        error = f"the schema registry {does} {schema_id}: {failure}"[:ERROR_CHARACTERS]
        self._failed[schema_id] = self._clock() + (UNKNOWN_SECONDS if failure.unknown else FAILED_SECONDS), error
        self._failed.move_to_end(schema_id)
        if len(self._failed) > MOST_FAILED:
            self._failed.popitem(last=False)

    def open(self) -> None:
        """Make the client. Raises Fatal if its properties do not fit together."""
        assert self._client

    @property
    def _client(self) -> SchemaClient:
        """The client, made when it is first used: its TLS context alone takes 20 ms."""
        if not self._clients:
            from scorer.decoding.schema_formats.schema_registry_client import SchemaRegistryHttpClient

            self._clients.append(SchemaRegistryHttpClient(self._settings))
        return self._clients[0]

    @property
    def _url(self) -> str:
        """The address without credentials."""
        return re.sub(r"//[^/@]*@", "//", self._settings.url or "")


def _in_thread(call: Callable[[], T]) -> "Future[T]":
    """Run a call in a thread that does not keep the process from ending: a request may hang."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:  # noqa: BLE001 - raised where the result is taken
            future.set_exception(error)

    threading.Thread(target=run, name="schema-look-up", daemon=True).start()
    return future
