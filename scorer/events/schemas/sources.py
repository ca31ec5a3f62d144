"""The reader of an event's schema: of the one file that is configured, or of the id that stands in the event."""

import functools
import importlib.util
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from publisher.errors import Fatal
from scorer.events.carrying import Path
from scorer.events.decoder import Poison, Reason
from scorer.events.fields import Fields
from scorer.events.schemas import registry as schemas
from scorer.events.schemas.fixed_layout import Layout
from scorer.events.schemas.registry import ID_BYTES, BadSchema, Registry, Schema
from scorer.events.schemas.varints import message_path
from scorer.events.tensors import Row
from scorer.settings import Settings
from scorer.settings.sections import SchemaRegistrySettings

LIBRARIES = {"avro": ("fastavro", "httpx2"), "protobuf": ("grpc_tools", "google.protobuf", "httpx2")}
"""What the extras bring."""
MALFORMED = Poison(Reason.MALFORMED, "the event does not begin with a zero byte and the id of its schema")


class Reader(Protocol):
    """Reads events of one schema. `layout` is their usual shape, where there is one."""

    layout: Layout | None

    def row(self, value: bytes, start: int) -> Row:
        """The values of one event behind a header of `start` bytes. Raises Poison."""

    def at(self, paths: Sequence[Path]) -> Callable[[bytes, int], list[Any]]:
        """What reads, of one event as above, what stands at each of these paths: None where there is nothing."""


class Source(Protocol):
    def header(self, value: bytes) -> bytes:
        """The bytes at the start of an event that say which schema it has. Raises Poison."""

    def reader(self, header: bytes, fields: Fields, id_field: str | None) -> Reader:
        """The reader of events with that header. Raises Poison where there is none, Fatal where it cannot be asked for."""


def source(settings: Settings) -> Source:
    """The configured one. Raises Fatal where the format's library is missing, or the file cannot be read."""
    wanted = settings.input
    for library in LIBRARIES[wanted.format]:
        if importlib.util.find_spec(library) is None:
            hint = f"pip install 'scorestream[{wanted.format}]'"
            raise Fatal(f"input.format {wanted.format} needs {library}, of the extra {wanted.format!r}", hint, 2)
    if wanted.schema_file is not None:
        return FileSource(wanted.format, wanted.schema_file.name, schemas.file_bytes(wanted.schema_file), wanted.message)
    return RegistrySource(wanted.format, shared(settings.schema_registry))


class FileSource:
    """One schema for all events, which have no header. `name` ends with .avsc, .proto, or else: a descriptor set."""

    def __init__(self, format_: str, name: str, data: bytes, message: str | None) -> None:
        self._format = format_
        self._name = name
        self._data = data
        self._message = message

    def header(self, value: bytes) -> bytes:  # noqa: ARG002 - every event has the same
        return b""

    def reader(self, header: bytes, fields: Fields, id_field: str | None) -> Reader:  # noqa: ARG002
        """Raises Fatal where the file is no schema."""
        described = self._format == "protobuf" and not self._name.endswith(".proto")
        try:
            schema = Schema(self._format, self._data if described else self._data.decode("utf-8"))
            return _reader(schema, self._message, fields, id_field)
        except (BadSchema, UnicodeDecodeError) as error:
            raise Fatal(f"input.schema_file {self._name}: {error}", "give the schema of the events", 2) from error


class RegistrySource:
    """Schemas by the id in each event."""

    def __init__(self, format_: str, registry: Registry) -> None:
        self._format = format_
        self._registry = registry

    def header(self, value: bytes) -> bytes:
        """A zero byte, the id, and for Protobuf the path of the message. Raises Poison."""
        if len(value) < ID_BYTES or value[0] != 0:
            raise MALFORMED
        if self._format == "avro":
            return value[:ID_BYTES]
        try:
            return value[: message_path(value, ID_BYTES)[1]]
        except IndexError:
            raise MALFORMED from None

    def reader(self, header: bytes, fields: Fields, id_field: str | None) -> Reader:
        number = int.from_bytes(header[1:ID_BYTES], "big")
        schema = self._registry.schema(number, self._format)
        path = message_path(header, ID_BYTES)[0] if self._format == "protobuf" else None
        try:
            return _reader(schema, path, fields, id_field)
        except BadSchema as error:
            raise Poison(Reason.UNKNOWN_SCHEMA, f"schema {number}: {error}") from None


def _reader(schema: Schema, message: str | list[int] | None, fields: Fields, id_field: str | None) -> Reader:
    """`message` is the name of a Protobuf message, or its path. Raises BadSchema."""
    if schema.format == "avro":
        from scorer.events.schemas.avro import AvroReader

        return AvroReader(schema, fields, id_field)
    from scorer.events.schemas import proto_files
    from scorer.events.schemas.protobuf import ProtobufReader

    file = proto_files.compiled(schema)
    found = proto_files.message_at(file, message) if isinstance(message, list) else proto_files.message_named(file, message)
    return ProtobufReader(found, fields, id_field)


def shared(settings: SchemaRegistrySettings) -> Registry:
    """The registry of these settings: one for the whole process, so that a new version knows what the last one knew."""
    return _shared(settings.model_dump_json())


@functools.lru_cache
def _shared(settings: str) -> Registry:
    return Registry(SchemaRegistrySettings.model_validate_json(settings))
