"""The draft of a signature that feeds one event at a time: which models need it, and how their inputs are written."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from model_registry.onnx.derive_signature import tensor_skeleton
from model_registry.onnx.tensors import Tensor
from model_registry.package import gaps
from model_registry.package.shapes import VARIES, is_open

MADE_UP = re.compile(r"unk|dim|\d")  # in the names that exporters give to axes of outputs


def reason(inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> str:
    """Why the model takes one event at a time, by its shapes; empty if it takes batches or a file of bytes."""
    opened = [one for one in inputs if one.shape and is_open(one.shape[0])]
    if not opened:
        fixed = next((one for one in inputs if one.shape[:1] == (1,)), None)
        return f"input {fixed.name!r} has the fixed batch size 1" if fixed else ""
    if any(one.dtype == "uint8" and len(one.shape) == 1 for one in opened):
        return ""
    names = {one.shape[0] for one in opened if _is_name(one.shape[0])}
    odd = [one for one in outputs if one.shape and not _is_batch(one.shape[0], names)]
    if not odd or len(odd) < len(outputs):
        return ""
    first = opened[0]
    return f"the first axes of input {first.name!r} {_written(first)} and output {odd[0].name!r} {_written(odd[0])} differ"


def opened(tensor: Tensor, *, alone: bool) -> Tensor:
    """An input as it is drafted: with an open batch before the row of one event, if the model takes one event at a time.

    A batch of one before at most one other axis is left out of the row: events have numbers, or a flat array.
    """
    if not alone or not tensor.shape or not (tensor.shape[0] == 1 or is_open(tensor.shape[0])):
        return tensor
    row = tensor.shape[1:] if tensor.shape[0] == 1 and len(tensor.shape) <= 2 else tensor.shape
    return replace(tensor, shape=(None, *row))


def single(document: dict[str, Any], tensor: Tensor, drafted: Tensor) -> dict[str, Any]:
    """A drafted input, fed one event at a time. An input that no field feeds is a constant."""
    if drafted is tensor or not {"fields", "mask_of"} & document.keys():
        return document
    if len(fields := document.get("fields", ())) == 1 and gaps.is_gap(fields[0]) and tensor.shape[0] == 1:
        return tensor_skeleton(tensor, False)
    row = document.get("shape") or _row(document, drafted)
    whole = row if len(drafted.shape) > len(tensor.shape) else [1, *row]
    kept = {key: value for key, value in document.items() if key != "pad"}
    return kept | {"shape": whole, "batch": False}


def _row(document: dict[str, Any], drafted: Tensor) -> list[int | str]:
    """The row of an input whose document has no shape."""
    if "mask_of" in document:
        return [VARIES]
    if document.get("shape") == []:
        return []
    size = drafted.shape[1] if len(drafted.shape) > 1 else 1
    length = next((one["length"] for one in document["fields"] if isinstance(one, dict) and "length" in one), None)
    return [length or (f"{gaps.BLANK}: the fields of a row" if is_open(size) else size or 1)]


def _is_name(size: object) -> bool:
    return isinstance(size, str) and not MADE_UP.search(size)


def _is_batch(size: int | str | None, names: set[Any]) -> bool:
    return is_open(size) and (not names or not _is_name(size) or size in names)


def _written(tensor: Tensor) -> str:
    return str([size if isinstance(size, int) else str(size or "?") for size in tensor.shape])
