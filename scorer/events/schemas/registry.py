"""Schemas of events, by themselves: a file that is read once, and a schema registry's client.

A schema never changes under its id, so each is fetched once.
"""

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from publisher.errors import Fatal
from publisher.process.outages import silent_registry
from scorer.events.decoder import Poison, Reason
from scorer.settings.sections import SchemaRegistrySettings

ID_BYTES = 5  # of Confluent's header: a zero byte, then the schema's id, big-endian
UNKNOWN, NOT_LET_IN = (400, 404, 422), (401, 403)  # HTTP: no such schema, where a registry says so; a wrong log-in
LARGEST_ID = 2**31 - 1
UNKNOWN_SECONDS = 10.0  # an id that the registry does not know is asked for again after so long: it may lag behind its leader


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema as text, its format (`avro` or `protobuf`), and what it refers to: names and texts. A Protobuf schema may be a
    descriptor set in place of text."""

    format: str
    text: str | bytes
    references: tuple[tuple[str, str], ...] = ()


class BadSchema(Exception):
    """The text is no schema of its format. The message says why."""


Fetch = Callable[[SchemaRegistrySettings, int], Schema]


class Registry:
    """A schema registry's schemas. `clock` is monotonic seconds."""

    def __init__(
        self, settings: SchemaRegistrySettings, fetch: Fetch | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._settings = settings
        self._fetch = fetch or fetched
        self._clock = clock
        self._known: dict[int, Schema] = {}
        self._unknown: dict[int, tuple[float, str]] = {}

    def schema(self, number: int, format_: str) -> Schema:
        """The schema with that id. Raises Poison where there is none of that format, Away where nobody answers."""
        if number > LARGEST_ID:  # a registry may answer such a question with anything
            raise Poison(Reason.UNKNOWN_SCHEMA, f"schema {number}: no registry has such an id")
        schema = self._known.get(number) or self._asked(number)
        if schema.format != format_:
            raise Poison(Reason.UNKNOWN_SCHEMA, f"schema {number} is {schema.format}, not {format_}")
        return schema

    def _asked(self, number: int) -> Schema:
        until, why = self._unknown.get(number, (0.0, ""))
        if why and self._clock() < until:
            raise Poison(Reason.UNKNOWN_SCHEMA, why)
        try:
            self._known[number] = schema = self._fetch(self._settings, number)
        except Poison as poison:
            self._unknown[number] = self._clock() + UNKNOWN_SECONDS, str(poison)
            raise
        return schema


def fetched(settings: SchemaRegistrySettings, number: int) -> Schema:
    """Ask the registry. Raises Poison where it does not know the id, Away where it does not answer, Fatal where it refuses."""
    from confluent_kafka.schema_registry import SchemaRegistryClient, SchemaRegistryError
    from httpx2 import TransportError

    try:
        with SchemaRegistryClient(settings.client) as client:
            try:
                found = client.get_schema(number)
                references = tuple(
                    (one.name or "", client.get_version(one.subject or "", one.version or "latest").schema.schema_str or "")
                    for one in found.references or []
                )
            except SchemaRegistryError as error:
                if error.http_status_code not in UNKNOWN:
                    raise
                client.get_subjects()  # whether it is the registry that says so
                raise Poison(Reason.UNKNOWN_SCHEMA, f"the schema registry does not know schema {number}: {error}") from None
    except SchemaRegistryError as error:
        if error.http_status_code in NOT_LET_IN:
            raise Fatal(f"schema registry {settings.url}: {error}", "check schema_registry.extra", 3) from error
        raise silent_registry(settings.url, error) from error
    except (TransportError, TypeError, ValueError) as error:
        raise silent_registry(settings.url, error) from error
    return Schema((found.schema_type or "AVRO").lower(), found.schema_str or "", references)


@functools.lru_cache
def file_bytes(path: Path) -> bytes:
    """A schema file, read once: what it said at the start holds until the end. Raises Fatal."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise Fatal(f"input.schema_file {path} cannot be read: {error.strerror}", "give the path of the schema", 2) from error
