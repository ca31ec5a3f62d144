"""Drafts the inputs of a signature from a model and example events.

An input tensor gets the values of the event field of the same name, at any depth of the event. If there is no such field, it
gets the only array that fits the tensor's shape. An ambiguous choice is left to the user as a *gap*: a placeholder text (FILL
IN).
"""

# If a row consists of several scalar fields, their order is always a gap. A field *fits* a tensor if the tensor accepts all of
# its values.

import contextlib
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from model_registry.errors import Refused
from model_registry.onnx_tools.declared_tensors import ModelTensor
from model_registry.onnx_tools.derive_signature import mask, masked_by, pad_gap, skeleton, tensor_skeleton
from model_registry.package import binary_fields, field_sources, json_path, placeholders
from model_registry.package.dtypes import DTYPES, FLOAT_LIMITS, event_fault
from model_registry.package.json_path import Step
from model_registry.package.placeholders import BLANK
from model_registry.package.shapes import VARIES, array_fault, is_open, length_in, shape_of_value, step_size
from model_registry.package.signature import InputField

Path = tuple[Step, ...]
MAX_CANDIDATES = 1_000  # most fields that a draft lists for one tensor
MAX_SHOWN = 3  # most paths of one field name in a message
NONE_NAMED = "the examples have none of that name"


@dataclass(slots=True)
class Drafting:
    """The state while the inputs of one signature are drafted.

    Attributes:
        values: The values in the example events by path, one per event; None for an event without a value.
        without_field: The tensors for which the events have no suitable field of the same name, or several.
        used_paths: The paths of the fields that already feed a tensor.
        names: The names of the fields drafted so far.
        notes: A message for each choice that was made, with its reason.
        tables: The names of the tables from which fields are joined.
    """

    values: Mapping[Path, Sequence[Any]]
    without_field: list[ModelTensor] = field(default_factory=list)
    used_paths: set[Path] = field(default_factory=set)
    names: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    tables: Sequence[str] = ()

    def table_of(self, path: Path) -> str | None:
        """Return the table from which the field at a path is joined; None if it is a field of the event.

        Example events state a joined field at the top level, with the table as the prefix of its name: `customers.age`.
        """
        return next((table for table in self.tables if len(path) == 1 and str(path[0]).startswith(f"{table}.")), None)


def draft_inputs(
    tensors: Sequence[ModelTensor], values: Mapping[Path, Sequence[Any]], tables: Sequence[str] = ()
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the drafted `inputs` of signature.json, and notes about the choices that were made.

    Args:
        tensors: The inputs of the model.
        values: The values of example events by path; empty to draft the inputs from the model alone.
        tables: The names of the tables from which fields are joined.

    Raises:
        Refused: The example events have no field of one of the tables.
    """
    _check_tables(tables, values)
    drafting = Drafting(values, tables=tables)
    drafting.without_field = [tensor for tensor in tensors if _named(drafting, tensor) is None]
    called = [
        tensor for tensor in tensors if tensor not in drafting.without_field
    ]  # their fields are not offered to other tensors
    make = _tensor if values else lambda drafting, tensor: _file(drafting, tensor) or skeleton(tensor, tensors)
    documents = {tensor.name: make(drafting, tensor) for tensor in (*called, *drafting.without_field)}
    if values:
        _mask(tensors, documents)
    return [documents[tensor.name] for tensor in tensors], drafting.notes


def apply_columns(document: dict[str, Any], columns: Sequence[str], optional: Collection[str]) -> dict[str, Any]:
    """Return the draft of an input, with its fields replaced by the fields that the imported model (such as MLflow's) states.

    Args:
        document: The draft.
        columns: The names of the fields of a row, in their order, if the model has one input; empty to keep the drafted fields.
        optional: The names of the fields that events may lack. Such a field gets a placeholder for its default.
    """
    if "fields" not in document:
        return document
    drafted = {_name(entry): entry for entry in document["fields"]}
    fields = [drafted.get(column, column) for column in columns] or document["fields"]
    gap = f"{BLANK}: the value to use if an event lacks this field"
    fields = [
        {"name": entry, "required": False, "default": gap} if isinstance(entry, str) and entry in optional else entry
        for entry in fields
    ]
    return document | {"fields": fields}


def _name(entry: Any) -> str:
    return str(entry["name"] if isinstance(entry, dict) else entry)


def _check_tables(tables: Sequence[str], values: Mapping[Path, Sequence[Any]]) -> None:
    """Raise Refused unless each name is valid for a table, and the example events have a field of each table."""
    for table in tables:
        hint = f'write the joined values into the file of --example, such as {{"{table}.age": 41}}'
        try:
            field_sources.check_table_name(table)
        except ValueError as error:
            raise Refused(f"--table: {error}", "write the name of the table in scorer.yaml") from None
        if not any(len(path) == 1 and str(path[0]).startswith(f"{table}.") for path in values):
            raise Refused(f"--table {table}: no example event has a field whose name begins with {table}.", hint)


def _mask(tensors: Sequence[ModelTensor], documents: dict[str, dict[str, Any]]) -> None:
    """Find the inputs that seem to be masks, and replace their drafts in `documents` by drafts of masks."""
    # Such an input has a usual name of a mask, and its draft has placeholders. The new placeholders ask whether the mask is 1
    # at values or at padding, and which value the padding has.
    varying = {
        name for name, document in documents.items() if VARIES in document.get("shape", ()) and document.get("batch", True)
    }
    for tensor in tensors:
        masked = [candidate for candidate in masked_by(tensor, tensors) if candidate.name in varying]
        if masked and tensor.name not in varying and any(placeholders.find_in_document(documents[tensor.name])):
            documents[tensor.name] = mask(tensor, masked[0])
            for name in varying:
                documents[name].setdefault("pad", pad_gap(documents[name]["dtype"]))


def _file(drafting: Drafting, tensor: ModelTensor) -> dict[str, Any] | None:
    """Draft a uint8 input with one open dimension as a field of bytes, such as a file; return None for other inputs."""
    # A model with such an input takes one event at a time.
    if tensor.dtype != "uint8" or len(tensor.shape) != 1 or not is_open(tensor.shape[0]):
        return None
    drafting.notes.append(
        f'input {tensor.name!r} takes bytes, such as a file, one event at a time; for a single number write "shape": []'
    )
    path = next((path for path in drafting.values if _has_name(drafting, path, tensor.name)), None)
    fed = _field(drafting, tensor, path) if path else {"name": tensor.name}
    fed = {key: value for key, value in fed.items() if key != "default"}
    document = {"tensor": tensor.name, "dtype": tensor.dtype, "shape": [VARIES], "batch": False}
    return document | {"fields": [fed | {"bytes": True, "max_length": f"{BLANK}: the largest number of bytes in an event"}]}


def _tensor(drafting: Drafting, tensor: ModelTensor) -> dict[str, Any]:
    document: dict[str, Any] = {"tensor": tensor.name, "dtype": tensor.dtype}
    if tensor.dtype not in DTYPES or not tensor.shape or not is_open(tensor.shape[0]):
        return tensor_skeleton(tensor, False)
    row = tensor.shape[1:]
    path = _named(drafting, tensor)
    if path is None and (file_document := _file(drafting, tensor)):
        return file_document
    path = path or _only_array(drafting, tensor)
    if path is None:
        if len(row) == 1 and row[0] != 1:
            return document | {"fields": _row(drafting, tensor)}
        shown = [-1 if is_open(size) else size for size in row]
        expected = f"one {tensor.dtype}" if row in ((), (1,)) else f"an array of shape {shown}, nested or flat"
        gap = f"{BLANK}: the field of events that feeds it, {expected}; {_mismatch_reason(drafting, tensor)}"
        shape = {} if len(row) == 1 else {"shape": tensor_skeleton(tensor, False)["shape"]}
        return document | shape | {"fields": [gap]}
    drafting.used_paths.add(path)
    if _is_bytes(drafting.values[path], tensor):
        return document | _bytes(drafting, tensor, path)
    if any(isinstance(step, int) for step in path):
        drafting.notes.append(
            f"input {tensor.name!r} takes {json_path.format_path(path)}; other places of the array are not read"
        )
    fed = _field(drafting, tensor, path)
    if not _is_array(drafting, path):
        return document | ({} if row else {"shape": []}) | {"fields": [_short(fed)]}
    length = _shape(drafting.values[path], row)
    if VARIES in length:
        bound = f"{BLANK}: the largest length that may occur; the examples have up to {_longest(drafting.values[path], length)}"
        fed = {key: value for key, value in fed.items() if key != "default"}
        return document | {"shape": length, "fields": [fed | {"array": True, "max_length": bound}]}
    if len(row) == 1:
        return document | {"fields": [fed | {"array": True, "length": length[0]}]}
    return document | {"shape": length, "fields": [fed | {"array": True}]}


def _named(drafting: Drafting, tensor: ModelTensor) -> Path | None:
    """Return the path of the field that has a tensor's name and fits the tensor; None if there is no such field, or several.

    Names are compared without case and separators. If several fields fit, fields with exactly the tensor's name are preferred,
    then fields at the top level of the event.
    """
    called = [path for path in drafting.values if path not in drafting.used_paths and _has_name(drafting, path, tensor.name)]
    fitting = [path for path in called if _fits(drafting.values[path], tensor)]
    exact = [path for path in fitting if path[-1] == tensor.name]
    top = [path for path in exact or fitting if len(path) == 1]
    candidates = top or exact or fitting
    if len({tuple(step for step in path if isinstance(step, str)) for path in candidates}) == 1:  # places of one array
        candidates = [path for path in candidates if None not in drafting.values[path]] or candidates
    return candidates[0] if len(candidates) == 1 else None


def _mismatch_reason(drafting: Drafting, tensor: ModelTensor) -> str:
    """Return why `_named` finds no field for a tensor: no field of that name, no fitting field, or several fields."""
    called = [path for path in drafting.values if path not in drafting.used_paths and _has_name(drafting, path, tensor.name)]
    fitting = [path for path in called if _fits(drafting.values[path], tensor)]
    if not called:
        return NONE_NAMED
    shown = " and ".join(json_path.format_path(path) for path in (fitting or called)[:MAX_SHOWN])
    if fitting:
        return f'the examples have {shown}: write the "path" of one'
    shapes = "".join(f", of shape {list(shape)}" for shape in _shapes(drafting.values[called[0]])[:1])
    return f"the examples have {shown}{shapes}, which does not fit"


def _shapes(values: Sequence[Any]) -> list[Sequence[int]]:
    """Return the shapes of the values that are arrays with a valid shape."""
    shapes: list[Sequence[int]] = []
    for array in (value for value in values if isinstance(value, list)):
        with contextlib.suppress(ValueError):
            shapes.append(shape_of_value(array))
    return shapes


def _only_array(drafting: Drafting, tensor: ModelTensor) -> Path | None:
    """Return the path of the only event array that feeds no tensor yet and fits this tensor.

    Returns None if no array fits, if several fit, or if the array also fits another tensor without a field of its name.
    """
    # The array is ambiguous too if it fits a second tensor without a field of its own name.
    free = [path for path in drafting.values if path not in drafting.used_paths and _is_array(drafting, path)]
    fitting = [path for path in free if _fits(drafting.values[path], tensor)]
    if len(fitting) != 1 or sum(_fits(drafting.values[fitting[0]], other) for other in drafting.without_field) > 1:
        return None
    drafting.notes.append(f"input {tensor.name!r} takes {json_path.format_path(fitting[0])}, the only array that fits it")
    return fitting[0]


def _row(drafting: Drafting, tensor: ModelTensor) -> list[Any]:
    """Return a list with a placeholder and the possible fields. The placeholder asks the user to select and order them."""
    scalars = [path for path in drafting.values if path not in drafting.used_paths and not _is_array(drafting, path)]
    fitting = [
        path for path in scalars if not any(event_fault(value, tensor.dtype) for value in _present(drafting.values[path]))
    ]
    count = "" if is_open(tensor.shape[1]) else f"{tensor.shape[1]} "
    gap = f"{BLANK}: leave here the {count}fields of a row, in the order in which the model was trained on them"
    return [gap, *(_short(_field(drafting, tensor, path)) for path in fitting[:MAX_CANDIDATES])]


def _field(drafting: Drafting, tensor: ModelTensor, path: Path) -> dict[str, Any]:
    """Draft the field at a path, with a placeholder for the default value if some example events lack the field."""
    name = str(path[0]) if len(path) == 1 else next(str(step) for step in reversed(path) if isinstance(step, str))
    table = drafting.table_of(path)
    if name in drafting.names and not table:  # the path of a joined field would be a column of the row
        name = json_path.format_path(path)
    drafting.names.add(name)
    document: dict[str, Any] = {"name": name} | ({} if path == (name,) else {"path": json_path.format_path(path)})
    document |= {"from": f"{field_sources.TABLE}{table}"} if table else {}
    if any(value is None for value in drafting.values[path]):
        hint = ' ("nan" if the model accepts missing numbers)' if tensor.dtype in FLOAT_LIMITS else ""
        document |= {"required": False, "default": f"{BLANK}: the value to use if an event lacks this field{hint}"}
    elif table:
        consequence = f"an event without a row in the table {table} is a dead letter"
        drafting.notes.append(f'field {name} is required: {consequence}; to score such an event, add "default"')
    return document


def _bytes(drafting: Drafting, tensor: ModelTensor, path: Path) -> dict[str, Any]:
    """Draft the shape of a tensor and its field at `path`. In the events, a row of the tensor is a text in base64."""
    fed = _field(drafting, tensor, path)
    row = list(tensor.shape[1:])
    encoding = 'bytes in base64; where the record\'s value is nothing but the bytes, add "from": "value" to the field'
    drafting.notes.append(f"input {tensor.name!r} takes {json_path.format_path(path)} as {encoding}")
    return {"shape": row, "fields": [fed | {"bytes": True}]}


def _is_bytes(values: Sequence[Any], tensor: ModelTensor) -> bool:
    """Return whether each value is one row of the tensor as bytes in base64."""
    # The tensor must have a fixed shape and at least two elements in a row.
    row = tensor.shape[1:]
    if tensor.dtype not in DTYPES or tensor.dtype == "string" or math.prod(map(_fixed, row)) < 2:
        return False
    field = InputField("", tensor.dtype, array=math.prod(map(_fixed, row)), raw=True)
    return not any(binary_fields.golden_fault(value, field) for value in _present(values))


def _fixed(size: int | str | None) -> int:
    """Return the size of a dimension; 0 if the dimension is open."""
    return size if isinstance(size, int) and not is_open(size) else 0


def _short(document: dict[str, Any]) -> Any:
    return document["name"] if document.keys() == {"name"} else document


def _has_name(drafting: Drafting, path: Path, name: str) -> bool:
    last = next((step for step in reversed(path) if isinstance(step, str)), "")
    if (table := drafting.table_of(path)) and _normalised_name(last) != _normalised_name(name):
        last = last.removeprefix(f"{table}.")
    return isinstance(path[-1], str) and _normalised_name(last) == _normalised_name(name)


def _normalised_name(name: str) -> str:
    """Return a name in lower case without separators, so that `depDelay` and `dep_delay` are equal."""
    return "".join(letter for letter in name.lower() if letter.isalnum()) or name


def _present(values: Sequence[Any]) -> list[Any]:
    return [value for value in values if value is not None]


def _is_array(drafting: Drafting, path: Path) -> bool:
    return isinstance(_present(drafting.values[path])[0], list)


def _fits(values: Sequence[Any], tensor: ModelTensor) -> bool:
    """Return whether a tensor accepts all values of a field.

    The values must be scalars of the tensor's dtype, rows as bytes in base64, or arrays that fit the tensor's shape.
    """
    present = _present(values)
    row = tensor.shape[1:]
    if tensor.dtype not in DTYPES:
        return False
    if _is_bytes(values, tensor):
        return True
    if isinstance(present[0], list):
        shape = _shape(values, row)
        longest = _longest(values, shape) if VARIES in shape else 1
        width = step_size(shape) * longest
        nested = tuple(shape) if len(shape) > 1 or VARIES in shape else None
        return bool(shape) and not any(
            array_fault(value, width, nested, lambda element: event_fault(element, tensor.dtype)) for value in present
        )
    return row in ((), (1,)) and not any(event_fault(value, tensor.dtype) for value in present)


def _shape(values: Sequence[Any], row: Sequence[int | str | None]) -> list[int]:
    """Return the common shape of the arrays in `values`; an empty list if they do not fit `row`, the shape of a tensor's row.

    A dimension in which the arrays have different lengths is -1.
    """
    shape = _first_shape(values, row)
    opened = [at for at, size in enumerate(row) if is_open(size)]
    if not shape or len(opened) != 1:
        return shape
    (at,) = opened
    varying = [*shape[:at], VARIES, *shape[at + 1 :]]
    lengths = {length_in(value, tuple(varying)) for value in _present(values) if isinstance(value, list)}
    return varying if len(lengths) > 1 else shape


def _longest(values: Sequence[Any], shape: Sequence[int]) -> int:
    """Return the largest length of the arrays in `values`, measured in the dimension that is -1 in `shape`."""
    return max(length_in(value, tuple(shape)) or 0 for value in _present(values) if isinstance(value, list))


def _first_shape(values: Sequence[Any], row: Sequence[int | str | None]) -> list[int]:
    """Return the shape of the first array in `values`; an empty list if it does not fit `row`, the shape of a tensor's row."""
    # A flat array has the shape of the row, if that shape is fixed and has as many elements as the array.
    try:
        shape = shape_of_value(_present(values)[0])
    except ValueError:
        return []
    if len(shape) == 1 and len(row) > 1 and not any(map(is_open, row)):
        fixed = [int(size or 0) for size in row]
        return fixed if math.prod(fixed) == shape[0] else []
    fits = len(shape) == len(row) and all(
        is_open(expected) or expected == size for expected, size in zip(row, shape, strict=True)
    )
    return shape if fits else []
