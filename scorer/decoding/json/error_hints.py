"""Hints for common mistakes of JSON producers. A hint names the cause of a rejected event and the remedy.

Each function returns the end of an error message; an empty string if no hint applies. The functions are called only for
rejected events.
"""

import json
from typing import Any

NO_NAN = (
    "JSON has no NaN and no Infinity, which Python's json.dumps writes without allow_nan=False: write a number, or null for a "
    'field that is not required ("required": false, "default": "nan" in the signature if the model takes NaN)'
)
PYTHON = ("'", "None", "True", "False", "nan", "inf", "-inf", "np.", "array(", "datetime.", "Decimal(")
"""Beginnings of texts that Python's str() writes and that are not JSON."""
COMPRESSED = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bzip2", b"PAR1": "Parquet", b"Obj\x01": "an Avro file"}
SCHEMA_ID_BYTES = 5


def binary(value: bytes) -> str:
    """Return a hint for a value that is not UTF-8."""
    for head, name in COMPRESSED.items():
        if value.startswith(head):
            return f": the value is {name}; write JSON, and leave compression to the producer (compression.type)"
    return _explain_schema_prefix(value)


def text(value: bytes, error: Exception) -> str:
    """Return a hint for a value that is text but not JSON."""
    if isinstance(error, json.JSONDecodeError):
        if error.doc.startswith(PYTHON, error.pos):
            return ": Python's str() does not write JSON; write json.dumps(event)"
        if error.msg == "Extra data":
            return ": a record is one event; write each further event as a record of its own"
    return _explain_schema_prefix(value)


def in_text(event: Any) -> str:
    """Return a hint for an event that is a JSON string instead of an object or array."""
    if isinstance(event, str) and event.lstrip().startswith(("{", "[")):
        return ": the string holds JSON, which was encoded twice; give the serializer the object, or write its JSON unchanged"
    return ""


def _explain_schema_prefix(value: bytes) -> str:
    if value.startswith(b"\0") and len(value) > SCHEMA_ID_BYTES:
        return ": the value begins with a schema's id, and no JSON follows; input.format: avro or protobuf reads such records"
    return ""
