"""The reader of an event's schema: of the one file that is configured, or of the id in the event's value or headers."""

import functools
import importlib.util
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path as FilePath
from typing import Any, Protocol

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

ID_BYTES = 5  # of Confluent's prefix: a zero byte, then the schema's id, big-endian
Key = bytes | HeaderFrame
"""The schema and message of an event: the prefix of its value, or what its headers name."""
LIBRARIES = {"avro": ("fastavro", "httpx2"), "protobuf": ("grpc_tools", "google.protobuf", "httpx2")}
"""What the extras bring."""
NO_ID = "the event does not begin with a zero byte and the id of its schema"
OTHERS = {
    b"\x03\x00": "AWS Glue's serialisers write it, with an id that no other registry has",
    b"\x03\x05": "AWS Glue's serialisers write it, with an id that no other registry has",
    b"\xc3\x01": "it is in Avro's single-object encoding",
    b"Obj\x01": "it is an Avro file with a schema of its own",
}
"""By its first bytes, what else an event is."""
NO_PATH = (
    "no path of a Protobuf message is behind the id of its schema, as Confluent's serialisers write it; confluent-kafka for "
    "Python writes another before 1.8, and with use.deprecated.format"
)


class EventReader(Protocol):
    """Reads events of one schema. `layout` is their usual shape, where there is one."""

    layout: FixedLayout | None

    def row(self, value: bytes, start: int) -> Row:
        """The values of one event behind a header of `start` bytes. Raises Poison."""

    def at(self, paths: Sequence[Path]) -> Callable[[bytes, int], list[Any]]:
        """What reads, of one event as above, what stands at each of these paths: None where there is nothing."""


class SchemaSource(Protocol):
    """Readers of events. `reads_headers`: headers may name the schema."""

    reads_headers: bool

    def key(self, value: bytes, headers: Headers = None) -> Key:
        """Return the key of an event. Raises Poison if it has none, or it is unclear which."""

    def look_up(self, keys: Iterable[Key]) -> None:
        """Look up the schemas of these keys. Raises LookUpsPending, Away and Fatal as `SchemaRegistry.look_up`."""

    def reader(self, key: Key, fields: RowSchema, id_field: str | None) -> EventReader:
        """Return the reader of events with that key.

        Raises Poison if there is none; Away and Fatal as `SchemaRegistry.schema`.
        """


def start_of(key: Key) -> int:
    """How many bytes of a value stand before the event."""
    return len(key if isinstance(key, bytes) else key.before)


def create_schema_source(settings: Settings) -> SchemaSource:
    """The configured one.

    Raises:
        Fatal: the format's library is missing, the file cannot be read, or the registry's properties do not fit together.
    """
    wanted = settings.input
    for library in LIBRARIES[wanted.format]:
        if importlib.util.find_spec(library) is None:
            hint = install_command(wanted.format)
            raise Fatal(f"input.format {wanted.format} needs {library}, of the extra {wanted.format!r}", hint, 2)
    if wanted.schema_file is not None:
        return SchemaFileSource(wanted.format, wanted.schema_file.name, file_bytes(wanted.schema_file), wanted.message)
    registry = shared(settings.schema_registry)
    registry.open()
    return SchemaRegistrySource(wanted.format, registry)


class SchemaFileSource:
    """One schema for all events, which have no header. `name` ends with .avsc, .proto, or else: a descriptor set."""

    def __init__(self, format_: str, name: str, data: bytes, message: str | None) -> None:
        self._format = format_
        self._name = name
        self._data = data
        self._message = message

    reads_headers = False

    def key(self, value: bytes, headers: Headers = None) -> Key:  # noqa: ARG002 - every event has the same
        return b""

    def look_up(self, keys: Iterable[Key]) -> None:
        """Do nothing: the schema is here."""

    def reader(self, key: Key, fields: RowSchema, id_field: str | None) -> EventReader:  # noqa: ARG002
        """Raises Fatal where the file is no schema."""
        described = self._format == "protobuf" and not self._name.endswith(".proto")
        try:
            schema = Schema(self._format, self._data if described else self._data.decode("utf-8"))
            return _reader(schema, self._message, fields, id_field)
        except (BadSchema, UnicodeDecodeError) as error:
            raise Fatal(f"input.schema_file {self._name}: {error}", "give the schema of the events", 2) from error


class SchemaRegistrySource:
    """Schemas by the id in each event's value or headers."""

    reads_headers = True

    def __init__(self, format_: str, registry: SchemaRegistry) -> None:
        self._format = format_
        self._registry = registry

    def key(self, value: bytes, headers: Headers = None) -> Key:
        """Return the key that the headers name, else the value's prefix: a zero byte, the id, for Protobuf the message's path.

        Raises Poison.
        """
        if headers and (frame := schema_id_headers.frame(headers, self._format)) is not None:
            return _with_reference(frame, value)
        if len(value) < ID_BYTES or value[0] != 0:
            raise Poison(Reason.MALFORMED, _no_id(value))
        if self._format == "avro":
            return value[:ID_BYTES]
        try:
            return value[: message_path(value, ID_BYTES)[1]]
        except ValueError:
            raise Poison(Reason.MALFORMED, NO_PATH) from None

    def look_up(self, keys: Iterable[Key]) -> None:
        self._registry.look_up(map(_schema_id, keys))

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


def _no_id(value: bytes) -> str:
    """Return what is wrong with an event without the id of its schema."""
    other = next((f"; {other}" for start, other in OTHERS.items() if value.startswith(start)), "")
    return f"{NO_ID}{other}"


def _schema_id(key: Key) -> SchemaId:
    return key.schema_id if isinstance(key, HeaderFrame) else SchemaId("id", int.from_bytes(key[1:ID_BYTES], "big"))


def _with_reference(frame: HeaderFrame, value: bytes) -> HeaderFrame:
    """Return the frame of a value that may begin with the name of its Protobuf message."""
    if isinstance(frame.message, str) and value.startswith(before := schema_id_headers.reference(frame.message)):
        return frame._replace(before=before)
    return frame


def _reader(schema: Schema, message: str | list[int] | None, fields: RowSchema, id_field: str | None) -> EventReader:
    """`message` is the name of a Protobuf message, or its path. Raises BadSchema."""
    if schema.format == "avro":
        from scorer.decoding.schema_formats.avro import AvroReader

        return AvroReader(schema, fields, id_field)
    from scorer.decoding.schema_formats import proto_files
    from scorer.decoding.schema_formats.protobuf import ProtobufReader

    file = proto_files.compiled(schema)
    found = proto_files.message_at(file, message) if isinstance(message, list) else proto_files.message_named(file, message)
    return ProtobufReader(found, fields, id_field)


def shared(settings: SchemaRegistrySettings) -> SchemaRegistry:
    """The registry of these settings: one for the whole process, so that a new version knows what the last one knew."""
    return _shared(settings.model_dump_json())


@functools.lru_cache
def _shared(settings: str) -> SchemaRegistry:
    return SchemaRegistry(SchemaRegistrySettings.model_validate_json(settings))


@functools.lru_cache
def file_bytes(path: FilePath) -> bytes:
    """Return the content of a schema file, which is read once in a process. Raises Fatal."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise Fatal(f"input.schema_file {path} cannot be read: {error.strerror}", "give the path of the schema", 2) from error
