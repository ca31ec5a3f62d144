"""Drafts signatures for models that take one event at a time: recognizes such models, and drafts their inputs.

The *first axis* of a tensor is usually the batch. If the inputs or outputs of a model have no batch, the model takes one event
at a time. An axis is *open* if the model states no size for it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from model_registry.onnx_tools.declared_tensors import ModelTensor, is_batch, is_name
from model_registry.onnx_tools.derive_signature import tensor_skeleton
from model_registry.onnx_tools.draft_inputs import NONE_NAMED
from model_registry.package import placeholders
from model_registry.package.shapes import VARIES, is_open


def batched(inputs: Sequence[ModelTensor], outputs: Sequence[ModelTensor]) -> list[ModelTensor]:
    """Return the outputs, with a fixed first axis replaced by an open axis if the names of the inputs' axes show a batch."""
    # It is the batch if the first axis of every input has the name of a batch. Such a model results if only the inputs were
    # declared as dynamic for the export: the exporter then writes the batch size of the example into the outputs. The batch
    # probe later checks whether the model really takes batches.
    fixed = all(tensor.shape and isinstance(tensor.shape[0], int) for tensor in outputs)
    if fixed and inputs and all(tensor.shape and is_batch(tensor.shape[0]) for tensor in inputs):
        return [replace(tensor, shape=(None, *tensor.shape[1:])) for tensor in outputs]
    return list(outputs)


def reason_for_single_events(inputs: Sequence[ModelTensor], outputs: Sequence[ModelTensor]) -> str:
    """Return the reason why the model takes one event at a time, judged by its shapes; empty if it takes batches."""
    # A model that takes bytes, such as a file, is left to `draft_inputs.draft_inputs`.
    opened = [tensor for tensor in inputs if tensor.shape and is_open(tensor.shape[0])]
    if not opened and (fixed := next((tensor for tensor in inputs if tensor.shape[:1] == (1,)), None)):
        return f"input {fixed.name!r} has the fixed batch size 1"
    if any(tensor.dtype == "uint8" and len(tensor.shape) == 1 for tensor in opened):
        return ""
    return _describe_unequal_axes(opened or [tensor for tensor in inputs if tensor.shape], outputs)


def _describe_unequal_axes(inputs: Sequence[ModelTensor], outputs: Sequence[ModelTensor]) -> str:
    """Return a message that the first axes of inputs and outputs differ; empty if an output has the inputs' first axis."""
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


def select_event_inputs(inputs: Sequence[ModelTensor]) -> list[ModelTensor]:
    """Return the inputs whose values come from events, not from constants."""
    # An input comes from events if its first axis has the size 1, or if any of its axes is open. Without such inputs, all
    # inputs with an axis come from events.
    # An input is fed by events if its first axis has the size 1, or if any of its axes is open. Without such inputs, all inputs
    # with an axis are fed by events.
    shaped = [tensor for tensor in inputs if tensor.shape]
    return [tensor for tensor in shaped if tensor.shape[0] == 1 or any(map(is_open, tensor.shape))] or shaped


def reason_for_single_lengths(
    inputs: Sequence[ModelTensor], outputs: Sequence[ModelTensor], drafted: Sequence[Mapping[str, Any]]
) -> str:
    """Return the reason why events of different lengths must be passed to the model one at a time; empty if there is none.

    `drafted` are the drafts of the inputs, which state the lengths that vary.
    """
    # If every output is as long as an input of varying length, the answers of several events have different shapes, and cannot
    # be in one batch.
    varying = [tensor for tensor, document in zip(inputs, drafted, strict=True) if VARIES in document.get("shape", ())]
    lengths = {size: tensor.name for tensor in varying for size in tensor.shape[1:] if isinstance(size, str)}
    shared = {tensor.name: size for tensor in outputs for size in tensor.shape[1:] if isinstance(size, str) and size in lengths}
    if not shared or len(shared) < len(outputs):
        return ""
    name, size = next(iter(shared.items()))
    return f"output {name!r} is as long as input {lengths[size]!r} ({size!r})"


def with_unit_batch(
    inputs: Sequence[ModelTensor], outputs: Sequence[ModelTensor], *, lengths: bool
) -> tuple[list[ModelTensor], list[ModelTensor]]:
    """Return the inputs and outputs of a model that takes one event at a time, with the size 1 for each batch axis.

    `lengths` states whether the answers are as long as the events.
    """
    # With `lengths`, an open first axis is the batch. Without, a batch axis is found by its name, which is the name of an
    # output's first axis and of a later axis of an input.
    batch = {tensor.shape[0] for tensor in outputs if tensor.shape} & {size for tensor in inputs for size in tensor.shape[1:]}
    names = {size for size in batch if isinstance(size, str)}

    def with_batch_of_one(tensor: ModelTensor) -> ModelTensor:
        if lengths:
            return replace(tensor, shape=(1, *tensor.shape[1:])) if tensor.shape and is_open(tensor.shape[0]) else tensor
        return replace(tensor, shape=tuple(1 if size in names else size for size in tensor.shape))

    return [with_batch_of_one(tensor) for tensor in inputs], [with_batch_of_one(tensor) for tensor in outputs]


def add_open_batch(tensor: ModelTensor, *, alone: bool) -> ModelTensor:
    """Return an input with an additional batch axis, so that it can be drafted.

    If `alone` is false, the model takes batches, and the input is returned unchanged.
    """
    # A first axis of size 1 with at most one other axis is replaced by the batch, so that an event has a number or a flat
    # array.
    if not alone:
        return tensor
    row = tensor.shape[1:] if tensor.shape[0] == 1 and len(tensor.shape) <= 2 else tensor.shape
    return replace(tensor, shape=(None, *row))


def draft_single_input(
    document: dict[str, Any], tensor: ModelTensor, drafted: ModelTensor, *, only: bool = False
) -> dict[str, Any]:
    """Return the draft of an input, changed to an input for one event at a time if `add_open_batch` added a batch axis.

    Args:
        document: The draft of the input.
        tensor: The input of the model.
        drafted: The tensor that `add_open_batch` returned for the input.
        only: Whether the model has no other input.
    """
    # If the model has other inputs, an input whose first axis has size 1 becomes a constant, unless a field of the example
    # events has its name.
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
    """Return the shape of one event's row for an input whose draft states no shape."""
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
