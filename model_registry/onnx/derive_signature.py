"""The signature of a model that comes without one, worked out from its inputs and outputs; where that is ambiguous, a skeleton.

Unambiguous is: only the batch is open of every input's shape. Each takes the event field of its own name, an array of as many
elements; a scalar where the shape is (B,), or (B, 1) beside other inputs. And the one output is a float, of any shape.
"""

import json
import math
from collections.abc import Sequence
from typing import Any

from model_registry.onnx import tensors
from model_registry.onnx.tensors import UNKNOWN, Tensor
from model_registry.package.dtypes import DTYPES, FLOAT_LIMITS
from model_registry.package.gaps import BLANK
from model_registry.package.shapes import MAX_RANK, MAX_WIDTH, is_open
from model_registry.package.signature import InputField, Output, Signature, SignatureError, TensorInput


class Underivable(SignatureError):
    """A model whose signature has to be written. `skeleton` is what is known of it, as JSON; `todo` what is to be filled in."""

    def __init__(self, todo: Sequence[str], skeleton: str) -> None:
        super().__init__("; ".join(todo), "model_registry/README.md describes signature.json")
        self.todo = tuple(todo)
        self.skeleton = skeleton


def derive(inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Signature:
    """The signature, if the model leaves no choice. Raises Underivable, saying what is ambiguous."""
    todo = [doubt for tensor in inputs if (doubt := _input_doubt(tensor))]
    if not inputs:
        todo.append("the model has no inputs")
    if doubt := _output_doubt(outputs):
        todo.append(doubt)
    if todo:
        document = {"inputs": [tensor_skeleton(one, len(inputs) == 1) for one in inputs], "output": _output_skeleton(outputs)}
        raise Underivable(todo, json.dumps(document, indent=1))
    fed = tuple(_fed(one, alone=len(inputs) == 1) for one in inputs)
    return Signature(fed, (Output(None, outputs[0].name, shape=answer_shape(outputs[0])),))


def answer_shape(tensor: Tensor) -> tuple[int, ...] | None:
    """The shape to state of an output, open lengths as -1; None where a number or a row says enough."""
    row = tuple(-1 if is_open(size) else int(size or 0) for size in tensor.shape[1:])
    return row if 2 <= len(row) <= MAX_RANK and 0 < math.prod(map(abs, row)) <= MAX_WIDTH else None


def _fed(tensor: Tensor, *, alone: bool) -> TensorInput:
    """An input of which only the batch is open, from one field."""
    row = tuple(int(size or 0) for size in tensor.shape[1:])
    width = math.prod(row)
    array = width if row and (alone or width > 1 or len(row) > 1) else None
    field = InputField(tensor.name, tensor.dtype, array=array, shape=row if len(row) > 1 else None)
    return TensorInput(tensor.name, tensor.dtype, (field,), None if len(row) == 1 else row)


def _input_doubt(tensor: Tensor) -> str | None:
    if fault := tensors.shape_fault(tensor):
        return fault
    if tensor.dtype not in DTYPES:
        return f"input {tensor.name!r} is {tensor.dtype}; it must be one of {', '.join(DTYPES)}"
    row = tensor.shape[1:]
    if any(is_open(size) or size == 0 for size in row):
        what = "name its fields, or the array field and its length" if len(row) == 1 else 'write the open dimensions in "shape"'
        return f"input {tensor.name!r} has shape {list(tensor.shape)}: {what}"
    if len(row) > MAX_RANK or math.prod(int(size or 0) for size in row) > MAX_WIDTH:
        most = f"at most {MAX_WIDTH} elements in {MAX_RANK} dimensions are fed"
        return f"input {tensor.name!r} has shape {list(tensor.shape)}; {most} of an event"
    return None


def _output_doubt(outputs: Sequence[Tensor]) -> str | None:
    floats = [one.name for one in outputs if one.dtype in FLOAT_LIMITS]
    if len(outputs) == 1 and floats:
        return None
    named = ", ".join(f"{one.name} ({one.dtype})" for one in outputs)
    return f"which output is the score, and which column of it? The model gives {named or 'nothing'}"


def tensor_skeleton(tensor: Tensor, alone: bool) -> dict[str, Any]:
    """An input of a document as the model states it, with gaps. `alone`: it has no other."""
    dtype = tensor.dtype if tensor.dtype in DTYPES else BLANK
    shape = [BLANK if is_open(size) or size == 0 else size for size in tensor.shape]
    if not tensor.shape or not is_open(tensor.shape[0]):
        return {"tensor": tensor.name, "dtype": dtype, "shape": shape, "value": BLANK, "batch": False}
    row = shape[1:]
    if len(row) == 1:
        array = {"name": tensor.name, "array": True, "length": row[0]}
        return {"tensor": tensor.name, "dtype": dtype, "fields": [tensor.name if row == [1] and not alone else array]}
    field: Any = {"name": tensor.name, "array": True} if row else tensor.name
    return {"tensor": tensor.name, "dtype": dtype, "shape": row, "fields": [field]}


def _output_skeleton(outputs: Sequence[Tensor]) -> dict[str, Any]:
    """The likeliest output: the one with several float columns (a classifier's probabilities), else the first float."""
    likely = [one for one in outputs if one.dtype in (*FLOAT_LIMITS, UNKNOWN)]
    wide = [one for one in likely if len(one.shape) == 2 and one.shape[1] != 1]
    chosen = next(iter(wide + likely), None)
    if chosen is None:
        return {"tensor": BLANK}
    return {"tensor": chosen.name} | ({"index": BLANK} if chosen in wide else {})
