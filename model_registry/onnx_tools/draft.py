"""Drafts the inputs of a signature from a model and example events, with gaps for the decisions that a user must make.

A tensor takes the event field of its own name, at any depth, or the only array that fits its shape. If names and shapes are
ambiguous, as is the order of the numbers in a row, the draft has a gap.
"""

import contextlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from model_registry.onnx_tools.derive_signature import mask, masked_by, pad_gap, skeleton, tensor_skeleton
from model_registry.onnx_tools.tensors import ModelTensor
from model_registry.package import binary_fields, json_path, placeholders
from model_registry.package.dtypes import DTYPES, FLOAT_LIMITS, event_fault
from model_registry.package.json_path import Step
from model_registry.package.placeholders import BLANK
from model_registry.package.shapes import VARIES, array_fault, is_open, length_in, shape_of_value, step_size
from model_registry.package.signature import InputField

Path = tuple[Step, ...]
MOST_CANDIDATES = 1_000  # fields that are listed for one tensor
MOST_SHOWN = 3  # paths of one field name in a message
NONE_NAMED = "the examples have none of that name"


@dataclass(slots=True)
class Drafting:
    """The state of one draft.

    Attributes:
        values: The example events' values by path, one for each event; None where the event has none.
        nameless: The tensors whose name no field has.
        taken: The paths that already feed a tensor.
        names: The field names in use.
        notes: The choices, each with its reason.
    """

    values: Mapping[Path, Sequence[Any]]
    nameless: list[ModelTensor] = field(default_factory=list)
    taken: set[Path] = field(default_factory=set)
    names: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)


def inputs(tensors: Sequence[ModelTensor], values: Mapping[Path, Sequence[Any]]) -> tuple[list[dict[str, Any]], list[str]]:
    """Return a document's inputs, and notes about the choices. Without values each input is as the model states it."""
    drafting = Drafting(values)
    drafting.nameless = [tensor for tensor in tensors if _named(drafting, tensor) is None]
    called = [tensor for tensor in tensors if tensor not in drafting.nameless]  # their fields are not offered to other tensors
    make = _tensor if values else lambda drafting, tensor: _file(drafting, tensor) or skeleton(tensor, tensors)
    documents = {tensor.name: make(drafting, tensor) for tensor in (*called, *drafting.nameless)}
    if values:
        _mask(tensors, documents)
    return [documents[tensor.name] for tensor in tensors], drafting.notes


def _mask(tensors: Sequence[ModelTensor], documents: dict[str, dict[str, Any]]) -> None:
    """Draft inputs that are named as masks, and that no field feeds, as masks. Their polarity and the padding are gaps."""
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
    """Draft a uint8 input with one open dimension as the bytes of one event; None for other inputs."""
    if tensor.dtype != "uint8" or len(tensor.shape) != 1 or not is_open(tensor.shape[0]):
        return None
    drafting.notes.append(
        f'input {tensor.name!r} takes bytes, such as a file, one event at a time; for a single number write "shape": []'
    )
    path = next((path for path in drafting.values if _called(path, tensor.name)), None)
    fed = _field(drafting, tensor, path) if path else {"name": tensor.name}
    fed = {key: value for key, value in fed.items() if key != "default"}
    document = {"tensor": tensor.name, "dtype": tensor.dtype, "shape": [VARIES], "batch": False}
    return document | {"fields": [fed | {"bytes": True, "max_length": f"{BLANK}: the most bytes of an event"}]}


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
    drafting.taken.add(path)
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
        bound = f"{BLANK}: the longest that may come; the examples have up to {_longest(drafting.values[path], length)}"
        fed = {key: value for key, value in fed.items() if key != "default"}
        return document | {"shape": length, "fields": [fed | {"array": True, "max_length": bound}]}
    if len(row) == 1:
        return document | {"fields": [fed | {"array": True, "length": length[0]}]}
    return document | {"shape": length, "fields": [fed | {"array": True}]}


def _named(drafting: Drafting, tensor: ModelTensor) -> Path | None:
    """Return the path of the field that has a tensor's name and fits it; None unless exactly one remains.

    An exact name is preferred, then a field at the top level.
    """
    called = [path for path in drafting.values if path not in drafting.taken and _called(path, tensor.name)]
    fitting = [path for path in called if _fits(drafting.values[path], tensor)]
    exact = [path for path in fitting if path[-1] == tensor.name]
    top = [path for path in exact or fitting if len(path) == 1]
    candidates = top or exact or fitting
    if len({tuple(step for step in path if isinstance(step, str)) for path in candidates}) == 1:  # places of one array
        candidates = [path for path in candidates if None not in drafting.values[path]] or candidates
    return candidates[0] if len(candidates) == 1 else None


def _mismatch_reason(drafting: Drafting, tensor: ModelTensor) -> str:
    """Return why no field of the examples feeds a tensor by its name."""
    called = [path for path in drafting.values if path not in drafting.taken and _called(path, tensor.name)]
    fitting = [path for path in called if _fits(drafting.values[path], tensor)]
    if not called:
        return NONE_NAMED
    shown = " and ".join(json_path.format_path(path) for path in (fitting or called)[:MOST_SHOWN])
    if fitting:
        return f'the examples have {shown}: write the "path" of one'
    shapes = "".join(f", of shape {list(shape)}" for shape in _shapes(drafting.values[called[0]])[:1])
    return f"the examples have {shown}{shapes}, which does not fit"


def _shapes(values: Sequence[Any]) -> list[Sequence[int]]:
    """Return the shapes of the arrays among values."""
    shapes: list[Sequence[int]] = []
    for array in (value for value in values if isinstance(value, list)):
        with contextlib.suppress(ValueError):
            shapes.append(shape_of_value(array))
    return shapes


def _only_array(drafting: Drafting, tensor: ModelTensor) -> Path | None:
    """Return the path of the only array that fits a tensor; None if several fit, or if it fits another nameless tensor too."""
    free = [path for path in drafting.values if path not in drafting.taken and _is_array(drafting, path)]
    fitting = [path for path in free if _fits(drafting.values[path], tensor)]
    if len(fitting) != 1 or sum(_fits(drafting.values[fitting[0]], other) for other in drafting.nameless) > 1:
        return None
    drafting.notes.append(f"input {tensor.name!r} takes {json_path.format_path(fitting[0])}, the only array that fits it")
    return fitting[0]


def _row(drafting: Drafting, tensor: ModelTensor) -> list[Any]:
    """List the fields that a row may consist of, after a gap: the examples do not state their order."""
    scalars = [path for path in drafting.values if path not in drafting.taken and not _is_array(drafting, path)]
    fitting = [
        path for path in scalars if not any(event_fault(value, tensor.dtype) for value in _present(drafting.values[path]))
    ]
    count = "" if is_open(tensor.shape[1]) else f"{tensor.shape[1]} "
    gap = f"{BLANK}: leave here the {count}fields of a row, in the order in which the model was trained on them"
    return [gap, *(_short(_field(drafting, tensor, path)) for path in fitting[:MOST_CANDIDATES])]


def _field(drafting: Drafting, tensor: ModelTensor, path: Path) -> dict[str, Any]:
    """Draft one field of the events, with a gap for its default if some events lack it."""
    name = str(path[0]) if len(path) == 1 else next(str(step) for step in reversed(path) if isinstance(step, str))
    name = json_path.format_path(path) if name in drafting.names else name
    drafting.names.add(name)
    document: dict[str, Any] = {"name": name} | ({} if path == (name,) else {"path": json_path.format_path(path)})
    if any(value is None for value in drafting.values[path]):
        hint = ' ("nan" if the model knows missing numbers)' if tensor.dtype in FLOAT_LIMITS else ""
        document |= {"required": False, "default": f"{BLANK}: what stands for it where an event lacks it{hint}"}
    return document


def _bytes(drafting: Drafting, tensor: ModelTensor, path: Path) -> dict[str, Any]:
    """Draft the shape and the field of a tensor whose bytes are in the events, in base64."""
    fed = _field(drafting, tensor, path)
    row = list(tensor.shape[1:])
    encoding = 'bytes in base64; where the record\'s value is nothing but the bytes, add "from": "value" to the field'
    drafting.notes.append(f"input {tensor.name!r} takes {json_path.format_path(path)} as {encoding}")
    return {"shape": row, "fields": [fed | {"bytes": True}]}


def _is_bytes(values: Sequence[Any], tensor: ModelTensor) -> bool:
    """Return whether each value is one row of the tensor as bytes in base64."""
    row = tensor.shape[1:]
    if tensor.dtype not in DTYPES or tensor.dtype == "string" or math.prod(map(_fixed, row)) < 2:
        return False
    field = InputField("", tensor.dtype, array=math.prod(map(_fixed, row)), raw=True)
    return not any(binary_fields.golden_fault(value, field) for value in _present(values))


def _fixed(size: int | str | None) -> int:
    """Return a dimension's size, 0 if it is open."""
    return size if isinstance(size, int) and not is_open(size) else 0


def _short(document: dict[str, Any]) -> Any:
    return document["name"] if document.keys() == {"name"} else document


def _called(path: Path, name: str) -> bool:
    last = next((step for step in reversed(path) if isinstance(step, str)), "")
    return isinstance(path[-1], str) and _normalised_name(last) == _normalised_name(name)


def _normalised_name(name: str) -> str:
    """Return a name in lower case without separators, so that depDelay equals dep_delay."""
    return "".join(letter for letter in name.lower() if letter.isalnum()) or name


def _present(values: Sequence[Any]) -> list[Any]:
    return [value for value in values if value is not None]


def _is_array(drafting: Drafting, path: Path) -> bool:
    return isinstance(_present(drafting.values[path])[0], list)


def _fits(values: Sequence[Any], tensor: ModelTensor) -> bool:
    """Return whether a tensor takes all values: scalars of its dtype, rows as bytes in base64, or arrays of one shape."""
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
    """Return the shape of the arrays, -1 for an open length that differs; an empty list if the tensor does not take them."""
    shape = _first_shape(values, row)
    opened = [at for at, size in enumerate(row) if is_open(size)]
    if not shape or len(opened) != 1:
        return shape
    (at,) = opened
    varying = [*shape[:at], VARIES, *shape[at + 1 :]]
    lengths = {length_in(value, tuple(varying)) for value in _present(values) if isinstance(value, list)}
    return varying if len(lengths) > 1 else shape


def _longest(values: Sequence[Any], shape: Sequence[int]) -> int:
    """Return the largest length of the arrays in the dimension that varies."""
    return max(length_in(value, tuple(shape)) or 0 for value in _present(values) if isinstance(value, list))


def _first_shape(values: Sequence[Any], row: Sequence[int | str | None]) -> list[int]:
    """Return the shape of the first array; an empty list if the tensor does not take it.

    A flat array has the tensor's shape if that is fixed and has as many elements.
    """
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
