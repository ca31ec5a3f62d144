"""The formats of `input.format` and their properties. Settings, decoders and commands use this list."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

FormatName = Literal["json", "json-array", "json-envelope", "float32", "avro", "protobuf", "bytes"]


@dataclass(frozen=True, slots=True)
class InputFormat:
    """The properties of one format of events.

    Attributes:
        fields: how a record's value contains the fields of a signature: by name, in the order of the signature, or not at all.
        has_id: whether a value can contain the event's id.
        has_schema: whether events are read with a schema, which comes from a file or a schema registry.
        is_json: whether values are JSON.
        is_binary: whether values are raw bytes. Only then can a whole value be one binary field of numbers.
    """

    fields: Literal["named", "positional", "none"]
    has_id: bool = False
    has_schema: bool = False
    is_json: bool = False
    is_binary: bool = False


INPUT_FORMATS: Mapping[FormatName, InputFormat] = MappingProxyType(
    {
        "json": InputFormat("named", has_id=True, is_json=True),
        "json-array": InputFormat("positional", is_json=True),
        "json-envelope": InputFormat("positional", has_id=True, is_json=True),
        "float32": InputFormat("positional", is_binary=True),
        "avro": InputFormat("named", has_id=True, has_schema=True),
        "protobuf": InputFormat("named", has_id=True, has_schema=True),
        "bytes": InputFormat("none", is_binary=True),
    }
)
SCHEMA_FORMATS = tuple(name for name, format_ in INPUT_FORMATS.items() if format_.has_schema)
NAMED_FIELD_FORMATS = tuple(name for name, format_ in INPUT_FORMATS.items() if format_.fields == "named")
