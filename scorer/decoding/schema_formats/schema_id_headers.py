"""Reading of schema ids from headers. The newer serialisers of Confluent and Apicurio write schema ids to headers.

If a record has such a header, its value has no prefix with a schema id.
"""

from functools import lru_cache
from typing import NamedTuple

from model_registry.untrusted_input.varint import encode_varint
from scorer.dead_letters.reasons import Poison, Reason
from scorer.decoding.batch import Headers
from scorer.decoding.schema_formats.schema import LARGEST_ID, SchemaId
from scorer.decoding.schema_formats.varints import message_path

CONFLUENT = "__value_schema_id"
GLOBAL_ID = "apicurio.value.globalId"
CONTENT_ID = "apicurio.value.contentId"
ENCODING = "apicurio.value.encoding"
MESSAGE = "apicurio.protobuf.type"
NAMING = frozenset(
    {CONFLUENT, GLOBAL_ID, CONTENT_ID}
    | {f"apicurio.value.{name}" for name in ("artifactId", "contentHash", "schema")}
    | {f"apicurio.registry.{name}" for name in ("globalId", "contentId")}
)
"""Names of all headers that identify the schema of a value, including unsupported headers."""
READ = NAMING | {ENCODING, MESSAGE}
MARKS = (CONFLUENT.encode(), b"apicurio.")
"""Substrings of header names. Each name in READ contains one of these substrings."""
LONG_BYTES = 8
GUID_BYTES = 16
# the first byte of Confluent's header: an id follows, or a GUID
PREFIX = 0
BY_GUID = 1


class HeaderFrame(NamedTuple):
    """The schema of an event, as identified in its headers.

    Attributes:
        schema_id: the identifier of the schema.
        message: the path or the name of the Protobuf message type; None if the headers do not name a type.
        before: the bytes at the start of the record's value, before the Protobuf message; empty if there are none.
    """

    schema_id: SchemaId
    message: tuple[int, ...] | str | None = None
    before: bytes = b""


def frame(headers: Headers, format_: str) -> HeaderFrame | None:
    """Return the schema that is identified in an event's headers; None if the headers identify no schema.

    `format_` is the input format. Raises Poison if the headers are invalid, contradict each other, or identify the schema in an
    unsupported way.
    """
    read = tuple(dict.fromkeys((name, _bytes(value)) for name, value in headers or () if name in READ))
    frame_or_error = _frame(read, format_) if read else None
    if isinstance(frame_or_error, str):
        raise Poison(Reason.UNKNOWN_SCHEMA, frame_or_error)
    return frame_or_error


def reference(message: str) -> bytes:
    """Return the length-prefixed type name that Apicurio's serialiser may write before a Protobuf message."""
    name = message.encode()
    body = b"\x0a" + encode_varint(len(name)) + name
    return encode_varint(len(body)) + body


@lru_cache(maxsize=4_096)
def _frame(headers: tuple[tuple[str, bytes], ...], format_: str) -> HeaderFrame | str | None:
    """Return the schema that is identified in the headers; None if there is none; the error as text if they are invalid."""
    naming = [(name, value) for name, value in headers if name in NAMING]
    supported = [scheme for scheme in naming if scheme[0] in (CONFLUENT, GLOBAL_ID, CONTENT_ID)]
    if not naming:
        return None
    if len(supported) > 1:
        return f"headers name different schemas: {', '.join(f'{name} {value[:32]!r}' for name, value in supported)}"
    if not supported:
        return f"header {naming[0][0]} names a schema in an unsupported way; write {CONFLUENT} or {CONTENT_ID}"
    [(name, value)] = supported
    try:
        return _parse_confluent(value, format_) if name == CONFLUENT else _parse_apicurio(name, value, dict(headers), format_)
    except (ValueError, IndexError):
        return f"header {name} is {value[:32]!r}, which is not the id of a schema"


def _parse_confluent(value: bytes, format_: str) -> HeaderFrame:
    """Parse the value of Confluent's header. Raises ValueError or IndexError if the value is not a schema id."""
    size = GUID_BYTES if value[0] == BY_GUID else 4
    text = value[1 : 1 + size]
    end = 1 + size
    if value[0] not in (PREFIX, BY_GUID) or len(text) < size:
        raise ValueError
    path, end = message_path(value, end) if format_ == "protobuf" else (None, end)
    if end != len(value):
        raise ValueError
    message = None if path is None else tuple(path)
    if value[0] == PREFIX:
        return HeaderFrame(SchemaId("id", int.from_bytes(text, "big")), message)
    digits = text.hex()
    guid = "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
    return HeaderFrame(SchemaId("GUID", guid), message)


def _parse_apicurio(name: str, value: bytes, headers: dict[str, bytes], format_: str) -> HeaderFrame | str:
    """Parse the value of one of Apicurio's id headers. Raises ValueError if the value is not a schema id.

    Returns:
        The schema; the error as text if the encoding of the event is not supported.
    """
    number = int.from_bytes(value, "big", signed=True)
    if len(value) != LONG_BYTES or not 0 < number <= LARGEST_ID:
        raise ValueError
    encoding = headers.get(ENCODING, b"BINARY")
    if format_ == "avro" and encoding != b"BINARY":
        return f"header {ENCODING} is {encoding[:32]!r}; only BINARY is supported"
    message = headers[MESSAGE].decode() if format_ == "protobuf" and MESSAGE in headers else None
    return HeaderFrame(SchemaId("global id" if name == GLOBAL_ID else "content id", number), message)


def _bytes(value: str | bytes | None) -> bytes:
    return value.encode() if isinstance(value, str) else value or b""
