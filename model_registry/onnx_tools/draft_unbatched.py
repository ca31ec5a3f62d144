"""Drafts signatures that feed one event at a time: decides which models need one, and writes their inputs."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from model_registry.onnx_tools.derive_signature import tensor_skeleton
from model_registry.onnx_tools.draft import NONE_NAMED
from model_registry.onnx_tools.tensors import ModelTensor, is_batch, is_name
from model_registry.package import placeholders
from model_registry.package.shapes import VARIES, is_open


def batched(inputs: Sequence[ModelTensor], outputs: Sequence[ModelTensor]) -> list[ModelTensor]:
    """Return the outputs with an open batch if every input names its batch and every output states a fixed one.

    Exporters write the size of the example where only the inputs were named as dynamic. The probe compares batches later.
    """
    fixed = all(one.shape and isinstance(one.shape[0], int) for one in outputs)
    if fixed and inputs and all(one.shape and is_batch(one.shape[0]) for one in inputs):
        return [replace(one, shape=(None, *one.shape[1:])) for one in outputs]
    return list(outputs)


def reason(inputs: Sequence[ModelTensor], outputs: Sequence[ModelTensor]) -> str:
    """Return why the model takes one event at a time, by its shapes; empty if it takes batches or a file of bytes."""
    opened = [one for one in inputs if one.shape and is_open(one.shape[0])]
    if not opened and (fixed := next((one for one in inputs if one.shape[:1] == (1,)), None)):
        return f"input {fixed.name!r} has the fixed batch size 1"
    if any(one.dtype == "uint8" and len(one.shape) == 1 for one in opened):
        return ""
    return _odd_axes(opened or [one for one in inputs if one.shape], outputs)


def _odd_axes(inputs: Sequence[ModelTensor], outputs: Sequence[ModelTensor]) -> str:
    """Return which first axes of inputs and outputs differ; empty if an output has the batch of the inputs."""
    if not inputs:
        return ""
    sizes = {one.shape[0] for one in inputs}
    names = {size for size in sizes if is_name(size)}
    fixed = not any(map(is_open, sizes))
    odd = [one for one in outputs if one.shape and not (one.shape[0] in sizes if fixed else _is_batch(one.shape[0], names))]
    if not odd or len(odd) < len(outputs):
        return ""
    first = inputs[0]
    return f"the first axes of input {first.name!r} {_written(first)} and output {odd[0].name!r} {_written(odd[0])} differ"


def are_fed(inputs: Sequence[ModelTensor]) -> list[ModelTensor]:
    """Return the inputs that an event feeds.

    These have a batch of one or an open axis; if no input has either, all inputs with an axis.
    """
    shaped = [one for one in inputs if one.shape]
    return [one for one in shaped if one.shape[0] == 1 or any(map(is_open, one.shape))] or shaped


def reason_of_lengths(
    inputs: Sequence[ModelTensor], outputs: Sequence[ModelTensor], drafted: Sequence[Mapping[str, Any]]
) -> str:
    """Return why the answers to events of several lengths need one event at a time; an empty string if an output does not.

    `drafted` are the documents of the inputs, which say which lengths vary.
    """
    varying = [one for one, document in zip(inputs, drafted, strict=True) if VARIES in document.get("shape", ())]
    lengths = {size: one.name for one in varying for size in one.shape[1:] if isinstance(size, str)}
    shared = {one.name: size for one in outputs for size in one.shape[1:] if isinstance(size, str) and size in lengths}
    if not shared or len(shared) < len(outputs):
        return ""
    name, size = next(iter(shared.items()))
    return f"output {name!r} is as long as input {lengths[size]!r} ({size!r})"


def of_one(
    inputs: Sequence[ModelTensor], outputs: Sequence[ModelTensor], *, lengths: bool
) -> tuple[list[ModelTensor], list[ModelTensor]]:
    """Return the inputs and outputs of a model that takes one event at a time, with its batch axes as a batch of one.

    The batch is the first axis if the answers are as long as events (`lengths`). Otherwise it is the axis that is first in an
    output and at another place in an input.
    """
    batch = {one.shape[0] for one in outputs if one.shape} & {size for one in inputs for size in one.shape[1:]}
    names = {size for size in batch if isinstance(size, str)}

    def whole(one: ModelTensor) -> ModelTensor:
        if lengths:
            return replace(one, shape=(1, *one.shape[1:])) if one.shape and is_open(one.shape[0]) else one
        return replace(one, shape=tuple(1 if size in names else size for size in one.shape))

    return [whole(one) for one in inputs], [whole(one) for one in outputs]


def opened(tensor: ModelTensor, *, alone: bool) -> ModelTensor:
    """Return an input as it is drafted: if it is fed one event at a time, with an open batch before the row of one event.

    A batch of one before at most one other axis is left out of the row: events have numbers, or a flat array.
    """
    if not alone:
        return tensor
    row = tensor.shape[1:] if tensor.shape[0] == 1 and len(tensor.shape) <= 2 else tensor.shape
    return replace(tensor, shape=(None, *row))


def single(document: dict[str, Any], tensor: ModelTensor, drafted: ModelTensor, *, only: bool = False) -> dict[str, Any]:
    """Return a drafted input, changed to one event at a time if it was drafted with an added batch.

    An input whose name no event has becomes a constant, unless it is the `only` one.
    """
    if drafted is tensor or not {"fields", "mask_of"} & document.keys():
        return document
    fields = document.get("fields", ())
    if (
        len(fields) == 1
        and placeholders.is_placeholder(fields[0])
        and NONE_NAMED in fields[0]
        and tensor.shape[0] == 1
        and not only
    ):
        return tensor_skeleton(tensor, False)
    row = document.get("shape") or _row(document, drafted)
    whole = row if len(drafted.shape) > len(tensor.shape) else [1, *row]
    kept = {key: value for key, value in document.items() if key != "pad"}
    return kept | {"shape": whole, "batch": False}


def _row(document: dict[str, Any], drafted: ModelTensor) -> list[int | str]:
    """Return the row of an input whose document has no shape."""
    if "mask_of" in document:
        return [VARIES]
    if document.get("shape") == []:
        return []
    size = drafted.shape[1] if len(drafted.shape) > 1 else 1
    length = next((one["length"] for one in document["fields"] if isinstance(one, dict) and "length" in one), None)
    return [length or (f"{placeholders.BLANK}: the fields of a row" if is_open(size) else size or 1)]


def _is_batch(size: int | str | None, names: set[Any]) -> bool:
    return is_open(size) and (not names or not is_name(size) or size in names)


def _written(tensor: ModelTensor) -> str:
    return str([size if isinstance(size, int) else str(size or "?") for size in tensor.shape])
