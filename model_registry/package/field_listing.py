"""Lists the fields and outputs of a signature with every property, also those that signature.json may omit. Has no I/O."""

import math
from typing import Any

from model_registry.package import field_sources, json_path, version_difference
from model_registry.package.signature import InputField, Signature

EVENT = "event"
COLUMNS = ("field", "type", "from", "if absent")


def list_fields(signature: Signature) -> list[dict[str, Any]]:
    """Return a document for each field of a signature, in the order of the signature.

    Each document has the keys `name`, `tensor` (the tensor that the field feeds), `dtype`, `type` (the dtype with the shape and
    the largest length), `from` (`event`, `key`, `header:NAME`, `time`, `value` or `table:NAME`), `path` (the place in the event
    or in the row of the table; None for another part of the record), `required`, and `default` (None without one; "nan" for
    NaN).
    """
    return [
        {
            "name": field.name,
            "tensor": tensor.tensor,
            "dtype": field.dtype,
            "type": version_difference.describe_type(field),
            "from": field.source or EVENT,
            "path": _path(field),
            "required": field.required,
            "default": "nan" if isinstance(field.default, float) and math.isnan(field.default) else field.default,
        }
        for tensor in signature.inputs
        for field in tensor.fields
    ]


def list_outputs(signature: Signature) -> list[dict[str, Any]]:
    """Return a document for each output of a signature.

    Each document has the keys `name` (`score` for an output without a name), `tensor`, `content` (a description of the part of
    the tensor that is read), `index`, `shape`, `top` and `labels` (None where the signature states none).
    """
    return [
        {
            "name": output.name or "score",
            "tensor": output.tensor,
            "content": version_difference.describe_output(signature, output),
            "index": output.index,
            "shape": output.shape,
            "top": output.top,
            "labels": output.labels or signature.labels,
        }
        for output in signature.outputs
    ]


def field_rows(signature: Signature) -> list[list[str]]:
    """Return a row of texts for each field, with the columns COLUMNS."""
    return [
        [listed["name"], listed["type"], _place(field, listed), _if_absent(field, listed)]
        for field, listed in zip(signature.fields, list_fields(signature), strict=True)
    ]


def _path(field: InputField) -> str | None:
    if field_sources.table_of(field):
        return json_path.format_path(field_sources.column_steps(field))
    return None if field.source else json_path.format_path(field.steps)


def _place(field: InputField, listed: dict[str, Any]) -> str:
    return f"{listed['from']}: {listed['path']}" if field.path else str(listed["from"])


def _if_absent(field: InputField, listed: dict[str, Any]) -> str:
    if field.required:
        return "required"
    return "empty" if field.varies else f"default {listed['default']!r}"
