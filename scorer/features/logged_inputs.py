"""The inputs of a version that the feature log contains: which columns of which tensors, under which names and Avro types."""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from model_registry.package.signature import InputField, Signature, TensorInput
from scorer.scores.schema import SOURCE

AVRO_TYPES = {
    **dict.fromkeys(("float16", "float32"), "float"),
    "float64": "double",
    **dict.fromkeys(("int8", "int16", "int32", "uint8", "uint16"), "int"),
    **dict.fromkeys(("int64", "uint32"), "long"),
    "uint64": "string",
    "bool": "boolean",
    "string": "string",
}
"""The Avro type of each dtype. A uint64 is a text of decimal digits, because Avro has no unsigned 64-bit integer."""
DEFAULTS = {"float": 0.0, "double": 0.0, "int": 0, "long": 0, "boolean": False, "string": ""}
"""The default of each Avro type. With a default, a reader can read records of versions that do not have the field."""
FIELD = "field"
"""The property of an Avro field that holds the input's name, because a name in Avro has only [A-Za-z0-9_]."""


@dataclass(frozen=True, slots=True)
class LoggedTensor:
    """A tensor of the model whose values are logged.

    Attributes:
        tensor: the name of the tensor.
        dtype: the name of the numpy dtype, or "string".
        fields: the logged fields of the tensor, in the order of the columns; exactly one for an array field.
        columns: the indices of the logged columns of scalar fields; None for an array field, or if all columns are logged.
        array: whether the tensor is an array field.
        varies: whether the length of the array differs from event to event.
    """

    tensor: str
    dtype: str
    fields: tuple[InputField, ...]
    columns: tuple[int, ...] | None = None
    array: bool = False
    varies: bool = False

    @property
    def avro_type(self) -> str:
        """The Avro type of an element."""
        return AVRO_TYPES[self.dtype]


def select_logged(signature: Signature, fields: Literal["all"] | Sequence[str]) -> tuple[LoggedTensor, ...]:
    """Return the tensors that contain logged fields. A field in several tensors is logged once, from the first of them.

    `fields` are the names of the logged fields, or "all". Names that the signature does not have are ignored.
    """
    remaining = {field.name for field in signature.fields if fields == "all" or field.name in fields}
    logged: list[LoggedTensor] = []
    for tensor in signature.fed:
        chosen = [(column, field) for column, field in enumerate(tensor.fields) if field.name in remaining]
        if chosen:
            remaining -= {field.name for _, field in chosen}
            logged.append(_logged_tensor(tensor, chosen))
    return tuple(logged)


def _logged_tensor(tensor: TensorInput, chosen: Sequence[tuple[int, InputField]]) -> LoggedTensor:
    fields = tuple(field for _, field in chosen)
    array = tensor.fields[0].array is not None
    columns = None if array or len(chosen) == len(tensor.fields) else tuple(column for column, _ in chosen)
    return LoggedTensor(tensor.tensor, tensor.dtype, fields, columns, array, tensor.varies)


def absent_names(signature: Signature, fields: Literal["all"] | Sequence[str]) -> list[str]:
    """Return the names in the setting `features.fields` that the signature does not have."""
    names = {field.name for field in signature.fields}
    return [] if fields == "all" else [name for name in fields if name not in names]


def avro_schema(logged: Iterable[LoggedTensor]) -> str:
    """Return the Avro schema of the feature records with these inputs, as JSON text.

    The fields of `inputs` are in the order of the tensors. Each of them has a default. Therefore the schemas of two versions
    are compatible (BACKWARD) unless an input has different types.
    """
    pairs = [(field, tensor) for tensor in logged for field in tensor.fields]
    names = avro_names([field.name for field, _ in pairs])
    inputs = [_avro_field(name, field, tensor) for name, (field, tensor) in zip(names, pairs, strict=True)]
    texts = [{"name": name, "type": "string"} for name in ("model", "version", "digest", "role")]
    fields: list[dict[str, Any]] = [
        {"name": "id", "type": "string"},
        {"name": "source", "type": SOURCE},
        {"name": "event_ms", "type": "long"},
        {"name": "scored_ms", "type": "long"},
        *texts,
        {"name": "revision", "type": "long"},
        {"name": "inputs", "type": {"type": "record", "name": "Inputs", "fields": inputs}},
    ]
    return json.dumps({"type": "record", "name": "Features", "namespace": "scorestream", "fields": fields})


def _avro_field(name: str, field: InputField, tensor: LoggedTensor) -> dict[str, Any]:
    element = tensor.avro_type
    type_: Any = {"type": "array", "items": element} if tensor.array else element
    default: Any = [] if tensor.array else DEFAULTS[element]
    return {"name": name, "type": type_, "default": default, FIELD: field.name}


def avro_names(names: Sequence[str]) -> list[str]:
    """Return a distinct Avro name for each name.

    Each character other than [A-Za-z0-9_] becomes `_`, and `_` is put before a leading digit. A name that is already used gets
    a number.
    """
    unchanged = {name for name in names if _avro_name(name) == name}
    used: set[str] = set()
    result: list[str] = []
    for name in names:
        candidate = base = _avro_name(name)
        number = 2
        while candidate in used or (candidate in unchanged and candidate != name):
            candidate = f"{base}_{number}"
            number += 1
        used.add(candidate)
        result.append(candidate)
    return result


def _avro_name(name: str) -> str:
    plain = re.sub(r"[^A-Za-z0-9_]", "_", name)
    return f"_{plain}" if plain[0].isdigit() else plain


def little_endian(dtype: str) -> np.dtype[Any]:
    """Return the dtype with which numbers of a float dtype are written in Avro: float32 or float64, little-endian."""
    return np.dtype("<f8" if dtype == "float64" else "<f4")
