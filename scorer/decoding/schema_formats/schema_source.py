"""Selection of the reader for each event, by the schema with which the event was written.

The schema comes from the configured file, or from a registry. If it comes from a registry, the value or the headers of an event
contain the id that the schema has in the registry.
"""

import functools
import importlib.util
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path as FilePath
from typing import Any, Protocol

from model_registry import suggestions
from model_registry.extras import install_command
from publisher.errors import Fatal
from scorer.dead_letters.reasons import Poison, Reason
from scorer.decoding.batch import Headers
from scorer.decoding.passthrough_fields import Path
from scorer.decoding.row_schema import RowSchema
from scorer.decoding.schema_formats import schema_id_headers
from scorer.decoding.schema_formats.fixed_width_decode import FixedLayout
from scorer.decoding.schema_formats.schema import BadSchema, Schema, SchemaId
from scorer.decoding.schema_formats.schema_id_headers import HeaderFrame
from scorer.decoding.schema_formats.schema_registry import SchemaRegistry
from scorer.decoding.schema_formats.varints import message_path
from scorer.decoding.tensors import Row
from scorer.settings import Settings
from scorer.settings.input import SchemaRegistrySettings

ID_BYTES = 5  # size of Confluent's prefix: a zero byte, then the schema's id, big-endian
Key = bytes | HeaderFrame
"""The schema key of an event: the prefix of its value, or the schema that is identified in its headers.

For Protobuf, the key also identifies the message type.
"""
LIBRARIES = {"avro": ("fastavro", "httpx2"), "protobuf": ("grpc_tools", "google.protobuf", "httpx2")}
"""The Python modules that a format needs. The package extra that has the name of the format installs them."""
NO_ID = "the event does not begin with a zero byte and the id of its schema"
OTHERS = {
    b"\x03\x00": "AWS Glue's serialisers write such events, with an id that other registries do not have",
    b"\x03\x05": "AWS Glue's serialisers write such events, with an id that other registries do not have",
    b"\xc3\x01": "the event is in Avro's single-object encoding",
    b"Obj\x01": "the event is an Avro file with a schema of its own",
}
"""Hints that name another encoding, by the first bytes of a value that does not begin with a schema id."""
NO_PATH = (
    "no path of a Protobuf message follows the schema's id, as Confluent's serialisers write it; confluent-kafka for "
    "Python writes another form before 1.8, and with use.deprecated.format"
)


class EventReader(Protocol):
    """Reader of the events of one schema. `layout` is the byte layout of most events; None if there is no fixed layout."""

    layout: FixedLayout | None

    def row(self, value: bytes, start: int) -> Row:
        """Return the row of the event that begins after a prefix of `start` bytes in the value. Raises Poison."""

    def path_reader(self, paths: Sequence[Path]) -> Callable[[bytes, int], list[Any]]:
        """Create a function that returns one value of an event for each path; None for a missing value.

        The arguments of the function are the same as those of `row`.
        """


class SchemaSource(Protocol):
    """Source of event readers. A key identifies the schema and the message type of an event.

    `reads_headers` is true if an event's headers may identify the event's schema.
    """

    reads_headers: bool

    def key(self, value: bytes, headers: Headers = None) -> Key:
        """Return the schema key of an event. Raises Poison if the event names no schema, or several different schemas."""

    def look_up(self, events: Mapping[Key, int]) -> None:
        """Fetch the schemas of these keys that are not known yet. `events` has the number of events with each key.

        Raises the same errors as `SchemaRegistry.look_up`.
        """

    def reader(self, key: Key, fields: RowSchema, id_field: str | None) -> EventReader:
        """Return the reader of the events with this key.

        Raises Poison if the schema does not exist or is invalid. Raises DependencyUnavailable and Fatal under the same
        conditions as `SchemaRegistry.schema`.
        """


def start_of(key: Key) -> int:
    """Return the number of bytes in the record's value that precede the event."""
    return len(key if isinstance(key, bytes) else key.before)


def create_schema_source(settings: Settings) -> SchemaSource:
    """Create the configured schema source.

    Raises:
        Fatal: the format's library is missing, the file cannot be read, or the registry's properties contradict each other.
    """
    input_settings = settings.input
    for library in LIBRARIES[input_settings.format]:
        if importlib.util.find_spec(library) is None:
            hint = install_command(input_settings.format)
            raise Fatal(
                f"input.format {input_settings.format} needs the package {library} of the extra {input_settings.format!r}",
                hint,
                2,
            )
    if input_settings.schema_file is not None:
        return SchemaFileSource(
            input_settings.format,
            input_settings.schema_file.name,
            file_bytes(input_settings.schema_file),
            input_settings.message,
        )
    registry = shared(settings.schema_registry)
    registry.open()
    return SchemaRegistrySource(input_settings.format, registry)


class SchemaFileSource:
    """Source of one schema from a file. The values of all events have this schema and do not start with a schema id.

    In the format protobuf, a file whose name ends with .proto is source text; any other file is a descriptor set.
    """

    def __init__(self, format_: str, name: str, data: bytes, message: str | None) -> None:
        self._format = format_
        self._name = name
        self._data = data
        self._message = message

    reads_headers = False

    def key(self, value: bytes, headers: Headers = None) -> Key:  # noqa: ARG002 - every event has the same
        return b""

    def look_up(self, events: Mapping[Key, int]) -> None:
        """Do nothing, because the file has already been read."""

    def reader(self, key: Key, fields: RowSchema, id_field: str | None) -> EventReader:  # noqa: ARG002
        """Return the reader of the file's schema. Raises Fatal if the schema is invalid."""
        described = self._format == "protobuf" and not self._name.endswith(".proto")
        try:
            schema = Schema(self._format, self._data if described else self._data.decode("utf-8"))
            return _reader(schema, self._message, fields, id_field)
        except (BadSchema, UnicodeDecodeError) as error:
            raise Fatal(
                f"input.schema_file {self._name}: {error}",
                "correct the schema, or set input.schema_file to the schema of the events",
                2,
            ) from error


class SchemaRegistrySource:
    """Source of schemas from a registry, by the schema id in each event's value or headers."""

    reads_headers = True

    def __init__(self, format_: str, registry: SchemaRegistry) -> None:
        self._format = format_
        self._registry = registry

    def key(self, value: bytes, headers: Headers = None) -> Key:
        """Return the schema key from the headers; if the headers name no schema, return the prefix of the value.

        The prefix consists of a zero byte, the schema id and, for Protobuf, the path of the message type. Raises Poison.
        """
        if headers and (frame := schema_id_headers.frame(headers, self._format)) is not None:
            return _with_reference(frame, value)
        if len(value) < ID_BYTES or value[0] != 0:
            raise Poison(Reason.MALFORMED, _missing_id_error(value))
        if self._format == "avro":
            return value[:ID_BYTES]
        try:
            return value[: message_path(value, ID_BYTES)[1]]
        except ValueError:
            raise Poison(Reason.MALFORMED, NO_PATH) from None

    def look_up(self, events: Mapping[Key, int]) -> None:
        counts = Counter[SchemaId]()
        for key, count in events.items():
            counts[_schema_id(key)] += count
        self._registry.look_up(counts)

    def reader(self, key: Key, fields: RowSchema, id_field: str | None) -> EventReader:
        schema_id = _schema_id(key)
        schema = self._registry.schema(schema_id, self._format)
        message: str | list[int] | None = None
        if isinstance(key, HeaderFrame):
            message = list(key.message) if isinstance(key.message, tuple) else key.message
        elif self._format == "protobuf":
            message = message_path(key, ID_BYTES)[0]
        try:
            return _reader(replace(schema, format=self._format), message, fields, id_field)
        except BadSchema as error:
            raise Poison(Reason.UNKNOWN_SCHEMA, f"{schema_id}: {error}") from None


def _missing_id_error(value: bytes) -> str:
    """Return the error text for a value that does not begin with a schema id."""
    other = next((f"; {other}" for start, other in OTHERS.items() if value.startswith(start)), "")
    return f"{NO_ID}{other}"


def _schema_id(key: Key) -> SchemaId:
    return key.schema_id if isinstance(key, HeaderFrame) else SchemaId("id", int.from_bytes(key[1:ID_BYTES], "big"))


def _with_reference(frame: HeaderFrame, value: bytes) -> HeaderFrame:
    """Return the frame with the length-prefixed name of its message type as `before`, if the value begins with this name.

    Otherwise return the frame unchanged. The frame is the schema that the event's headers identify.
    """
    if isinstance(frame.message, str) and value.startswith(before := schema_id_headers.reference(frame.message)):
        return frame._replace(before=before)
    return frame


def _reader(schema: Schema, message: str | list[int] | None, fields: RowSchema, id_field: str | None) -> EventReader:
    """Create the event reader of a schema. `message` is the name or the path of a Protobuf message type. Raises BadSchema."""
    if schema.format == "avro":
        from scorer.decoding.schema_formats.avro import AvroReader

        return AvroReader(schema, fields, id_field)
    from scorer.decoding.schema_formats import proto_files
    from scorer.decoding.schema_formats.protobuf import ProtobufReader

    file = proto_files.compiled(schema)
    descriptor = (
        proto_files.message_at(file, message) if isinstance(message, list) else proto_files.message_named(file, message)
    )
    return ProtobufReader(descriptor, fields, id_field)


def shared(settings: SchemaRegistrySettings) -> SchemaRegistry:
    """Return the schema cache for these settings, which all model versions share, so that each schema is fetched once."""
    return _shared(settings.model_dump_json())


@functools.lru_cache
def _shared(settings: str) -> SchemaRegistry:
    return SchemaRegistry(SchemaRegistrySettings.model_validate_json(settings))


@functools.lru_cache
def file_bytes(path: FilePath) -> bytes:
    """Return the content of a schema file, which is read once per process. Raises Fatal if the file cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        hint = suggestions.file_question(path) or "give the path of the schema"
        raise Fatal(f"input.schema_file {path} cannot be read: {error.strerror}", hint, 2) from error
