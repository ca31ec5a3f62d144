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
    fixed = all(tensor.shape and isinstance(tensor.shape[0], int) for tensor in outputs)
    if fixed and inputs and all(tensor.shape and is_batch(tensor.shape[0]) for tensor in inputs):
        return [replace(tensor, shape=(None, *tensor.shape[1:])) for tensor in outputs]
    return list(outputs)


def reason(inputs: Sequence[ModelTensor], outputs: Sequence[ModelTensor]) -> str:
    """Return why the model takes one event at a time, by its shapes; empty if it takes batches or a file of bytes."""
    opened = [tensor for tensor in inputs if tensor.shape and is_open(tensor.shape[0])]
    if not opened and (fixed := next((tensor for tensor in inputs if tensor.shape[:1] == (1,)), None)):
        return f"input {fixed.name!r} has the fixed batch size 1"
    if any(tensor.dtype == "uint8" and len(tensor.shape) == 1 for tensor in opened):
        return ""
    return _odd_axes(opened or [tensor for tensor in inputs if tensor.shape], outputs)


def _odd_axes(inputs: Sequence[ModelTensor], outputs: Sequence[ModelTensor]) -> str:
    """Return which first axes of inputs and outputs differ; empty if an output has the batch of the inputs."""
    if not inputs:
        return ""
    sizes = {tensor.shape[0] for tensor in inputs}
    names = {size for size in sizes if is_name(size)}
    fixed = not any(map(is_open, sizes))
    odd = [
        tensor
        for tensor in outputs
        if tensor.shape and not (tensor.shape[0] in sizes if fixed else _is_batch(tensor.shape[0], names))
    ]
    if not odd or len(odd) < len(outputs):
        return ""
    first = inputs[0]
    return f"the first axes of input {first.name!r} {_written(first)} and output {odd[0].name!r} {_written(odd[0])} differ"


def are_fed(inputs: Sequence[ModelTensor]) -> list[ModelTensor]:
    """Return the inputs that an event feeds.

    These have a batch of one or an open axis; if no input has either, all inputs with an axis.
    """
    shaped = [tensor for tensor in inputs if tensor.shape]
    return [tensor for tensor in shaped if tensor.shape[0] == 1 or any(map(is_open, tensor.shape))] or shaped


def reason_of_lengths(
    inputs: Sequence[ModelTensor], outputs: Sequence[ModelTensor], drafted: Sequence[Mapping[str, Any]]
) -> str:
    """Return why the answers to events of several lengths need one event at a time; an empty string if an output does not.

    `drafted` are the documents of the inputs, which say which lengths vary.
    """
    varying = [tensor for tensor, document in zip(inputs, drafted, strict=True) if VARIES in document.get("shape", ())]
    lengths = {size: tensor.name for tensor in varying for size in tensor.shape[1:] if isinstance(size, str)}
    shared = {tensor.name: size for tensor in outputs for size in tensor.shape[1:] if isinstance(size, str) and size in lengths}
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
    batch = {tensor.shape[0] for tensor in outputs if tensor.shape} & {size for tensor in inputs for size in tensor.shape[1:]}
    names = {size for size in batch if isinstance(size, str)}

    def with_batch_of_one(tensor: ModelTensor) -> ModelTensor:
        if lengths:
            return replace(tensor, shape=(1, *tensor.shape[1:])) if tensor.shape and is_open(tensor.shape[0]) else tensor
        return replace(tensor, shape=tuple(1 if size in names else size for size in tensor.shape))

    return [with_batch_of_one(tensor) for tensor in inputs], [with_batch_of_one(tensor) for tensor in outputs]


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
    shape = row if len(drafted.shape) > len(tensor.shape) else [1, *row]
    unpadded = {key: value for key, value in document.items() if key != "pad"}
    return unpadded | {"shape": shape, "batch": False}


def _row(document: dict[str, Any], drafted: ModelTensor) -> list[int | str]:
    """Return the row of an input whose document has no shape."""
    if "mask_of" in document:
        return [VARIES]
    if document.get("shape") == []:
        return []
    size = drafted.shape[1] if len(drafted.shape) > 1 else 1
    length = next((array["length"] for array in document["fields"] if isinstance(array, dict) and "length" in array), None)
    return [length or (f"{placeholders.BLANK}: the fields of a row" if is_open(size) else size or 1)]


def _is_batch(size: int | str | None, names: set[Any]) -> bool:
    return is_open(size) and (not names or not is_name(size) or size in names)


def _written(tensor: ModelTensor) -> str:
    return str([size if isinstance(size, int) else str(size or "?") for size in tensor.shape])
