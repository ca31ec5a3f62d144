"""Derives a signature from the inputs and outputs of a model, or drafts a skeleton of it if the model is ambiguous.

A dimension is *open* if the model states no size for it. A *gap* in a skeleton is a placeholder text (FILL IN) for a decision
that the user must make.
"""

# A model is unambiguous if the batch is the only open dimension of every input, and its only output is a float tensor of any
# shape. Each input then has the values of the event field of the same name. The field is a scalar if the input's shape is (B,),
# or if the shape is (B, 1) and the model has further inputs. Otherwise the field is an array with as many elements as the
# input's row.

import json
import math
from collections.abc import Sequence
from typing import Any

from model_registry.onnx_tools import declared_tensors
from model_registry.onnx_tools.declared_tensors import UNKNOWN, ModelTensor, Shape
from model_registry.package.dtypes import DTYPES, FLOAT_LIMITS
from model_registry.package.placeholders import BLANK
from model_registry.package.shapes import MAX_RANK, MAX_WIDTH, VARIES, is_open
from model_registry.package.signature import InputField, Output, Signature, SignatureError, TensorInput


class Underivable(SignatureError):
    """No signature can be derived from a model. The user must complete a draft by hand.

    Attributes:
        gaps: A text for each decision that the user must make.
        skeleton: The draft of the signature as JSON, with a placeholder for each value that the model does not state.
    """

    def __init__(self, todo: Sequence[str], skeleton: str) -> None:
        super().__init__("; ".join(todo), "model_registry/docs/signature.md describes signature.json")
        self.gaps = tuple(todo)
        self.skeleton = skeleton


def derive(inputs: Sequence[ModelTensor], outputs: Sequence[ModelTensor]) -> Signature:
    """Return the signature of an unambiguous model with these inputs and outputs.

    Raises:
        Underivable: The model is ambiguous.
    """
    todo = [doubt for tensor in inputs if not masked_by(tensor, inputs) and (doubt := _input_doubt(tensor))]
    if not inputs:
        todo.append("the model has no inputs")
    if doubt := _output_doubt(outputs):
        todo.append(doubt)
    if todo:
        skeletons = [skeleton(tensor, inputs) for tensor in inputs]
        document = {"inputs": skeletons, "output": _output_skeleton(outputs)}
        raise Underivable(todo, json.dumps(document, indent=1))
    fed = tuple(_build_fed_input(tensor, alone=len(inputs) == 1) for tensor in inputs)
    return Signature(fed, (Output(None, outputs[0].name, shape=answer_shape(outputs[0])),))


def answer_shape(tensor: ModelTensor) -> tuple[int, ...] | None:
    """Return the `shape` that the signature states for an output; None if the signature needs no `shape`.

    The shape has the size of each dimension after the batch, and -1 for a dimension without a fixed size.
    """
    # A shape beyond MAX_RANK or MAX_WIDTH is not stated either.
    row = tuple(-1 if is_open(size) else int(size or 0) for size in tensor.shape[1:])
    return row if 2 <= len(row) <= MAX_RANK and 0 < math.prod(map(abs, row)) <= MAX_WIDTH else None


def _build_fed_input(tensor: ModelTensor, *, alone: bool) -> TensorInput:
    """Build a signature's input with one field from a model's input. Only the batch dimension of that input may be open.

    `alone` states whether the model has no other input.
    """
    row = tuple(int(size or 0) for size in tensor.shape[1:])
    width = math.prod(row)
    array = width if row and (alone or width > 1 or len(row) > 1) else None
    field = InputField(tensor.name, tensor.dtype, array=array, shape=row if len(row) > 1 else None)
    return TensorInput(tensor.name, tensor.dtype, (field,), None if len(row) == 1 else row)


def _input_doubt(tensor: ModelTensor) -> str | None:
    if fault := declared_tensors.shape_fault(tensor):
        return fault
    if tensor.dtype not in DTYPES:
        return f"input {tensor.name!r} is {tensor.dtype}; it must be one of {', '.join(DTYPES)}"
    row = tensor.shape[1:]
    if any(is_open(size) or size == 0 for size in row):
        return f"input {tensor.name!r} has shape {list(tensor.shape)}: {_open_doubt(row)}"
    if len(row) > MAX_RANK or math.prod(int(size or 0) for size in row) > MAX_WIDTH:
        most = f"an event may feed at most {MAX_WIDTH} elements in {MAX_RANK} dimensions"
        return f"input {tensor.name!r} has shape {list(tensor.shape)}, but {most}"
    return None


def _open_doubt(row: Shape) -> str:
    """Return advice on how to write the open dimensions of `row`, a shape without the batch, in the signature."""
    advice = "name its fields, or the array field and its length" if len(row) == 1 else 'write the open dimensions in "shape"'
    if sum(map(_is_open_or_zero, row)) > 1:
        return f"{advice}; write -1 for one of them if it varies from event to event"
    bound = 'such as {"name": ..., "array": true, "max_length": 512}, and "pad" if the model has a mask'
    return f"{advice}; or, if the length varies from event to event, keep -1 and state the largest length, {bound}"


def _is_open_or_zero(size: int | str | None) -> bool:
    """Return whether a dimension of a model is open; some models state the size 0 for an open dimension."""
    return is_open(size) or size == 0


def _output_doubt(outputs: Sequence[ModelTensor]) -> str | None:
    floats = [tensor.name for tensor in outputs if tensor.dtype in FLOAT_LIMITS]
    if len(outputs) == 1 and floats:
        return None
    named = ", ".join(f"{tensor.name} ({tensor.dtype})" for tensor in outputs)
    odd = next(
        (
            f"; {tensor.name!r} is not a tensor: {declared_tensors.remedy(tensor)}"
            for tensor in outputs
            if not declared_tensors.is_tensor(tensor)
        ),
        "",
    )
    return f"which output is the score, and which column of it? The model gives {named or 'nothing'}{odd}"


def _varying_skeleton(tensor: ModelTensor, inputs: Sequence[ModelTensor]) -> dict[str, Any] | None:
    """Draft an input as a tensor of varying length, or as the mask of one.

    Returns None if the input does not have exactly two open dimensions: the batch and the length.
    """
    row = tensor.shape[1:]
    if not tensor.shape or not is_open(tensor.shape[0]) or sum(map(_is_open_or_zero, row)) != 1 or tensor.dtype not in DTYPES:
        return None
    document: dict[str, Any] = {"tensor": tensor.name, "dtype": tensor.dtype}
    if masked := masked_by(tensor, inputs):
        return mask(tensor, masked[0])
    field = {"name": tensor.name, "array": True, "max_length": BLANK}
    document |= {"shape": [VARIES if _is_open_or_zero(size) else size for size in row], "fields": [field]}
    masked_too = any(tensor in masked_by(candidate, inputs) for candidate in inputs)
    return document | ({"pad": pad_gap(tensor.dtype)} if masked_too else {})


def mask(tensor: ModelTensor, masked: ModelTensor) -> dict[str, Any]:
    """Draft `tensor` as the mask of the input `masked`. A placeholder asks whether the mask is 1 at values or at padding."""
    gap = f"{BLANK}: values if the mask is 1 (true) at values, padding if it is 1 (true) at padding"
    return {"tensor": tensor.name, "dtype": tensor.dtype, "mask_of": masked.name, "marks": gap}


def pad_gap(dtype: str) -> str:
    """Return the placeholder for the padding value of a tensor with this dtype."""
    example = '""' if dtype == "string" else "false" if dtype == "bool" else "0"
    return f"{BLANK}: the value that the model was trained to see as padding, such as {example}; without pad nothing is padded"


def masked_by(tensor: ModelTensor, inputs: Sequence[ModelTensor]) -> list[ModelTensor]:
    """Return the inputs whose padding this tensor seems to mark, judged by its name and shape."""
    if "mask" not in tensor.name or len(tensor.shape) != 2 or not _is_open_or_zero(tensor.shape[1]):
        return []
    return [candidate for candidate in inputs if candidate.shape[:2] == tensor.shape and "mask" not in candidate.name]


def skeleton(tensor: ModelTensor, inputs: Sequence[ModelTensor]) -> dict[str, Any]:
    """Draft the input `tensor` without example events, with placeholders for unknown values. `inputs` are all model inputs."""
    return _varying_skeleton(tensor, inputs) or tensor_skeleton(tensor, len(inputs) == 1)


def tensor_skeleton(tensor: ModelTensor, alone: bool) -> dict[str, Any]:
    """Draft an input as a tensor of fixed length, with placeholders for unknown values.

    `alone` states whether the model has no other input.
    """
    dtype = tensor.dtype if tensor.dtype in DTYPES else BLANK
    shape = [BLANK if _is_open_or_zero(size) else size for size in tensor.shape]
    if not tensor.shape or not is_open(tensor.shape[0]):
        fixed = {"tensor": tensor.name, "dtype": dtype, "shape": shape}
        if alone and shape[:1] == [1]:
            return fixed | {"fields": [{"name": tensor.name, "array": True}], "batch": False}
        return fixed | {"value": BLANK, "batch": False}
    row = shape[1:]
    if len(row) == 1:
        array = {"name": tensor.name, "array": True, "length": row[0]}
        return {"tensor": tensor.name, "dtype": dtype, "fields": [tensor.name if row == [1] and not alone else array]}
    field: Any = {"name": tensor.name, "array": True} if row else tensor.name
    return {"tensor": tensor.name, "dtype": dtype, "shape": row, "fields": [field]}


def _output_skeleton(outputs: Sequence[ModelTensor]) -> dict[str, Any]:
    """Draft the output that is most likely the score: a float output, preferably with several columns."""
    # An output with several columns may be the probabilities of a classifier.
    likely = [tensor for tensor in outputs if tensor.dtype in (*FLOAT_LIMITS, UNKNOWN)]
    wide = [tensor for tensor in likely if len(tensor.shape) == 2 and tensor.shape[1] != 1]
    chosen = next(iter(wide + likely), None)
    if chosen is None:
        return {"tensor": BLANK}
    return {"tensor": chosen.name} | ({"index": BLANK} if chosen in wide else {})
