"""The signature of a model that comes without one, worked out from its inputs and outputs; where that is ambiguous, a skeleton.

Unambiguous is: every input is (B, n) of a fixed n and takes the event field of its own name (an array of n, or a scalar where
there are several inputs and n is 1), and the one output is a float.
"""

import json
from collections.abc import Sequence
from typing import Any

from model_registry.onnx import tensors
from model_registry.onnx.tensors import UNKNOWN, Tensor
from model_registry.package.signature import DTYPES, FLOAT_LIMITS, InputField, Output, Signature, SignatureError, TensorInput

BLANK = "FILL IN"


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
        document = {"inputs": [_tensor_skeleton(one, len(inputs) == 1) for one in inputs], "output": _output_skeleton(outputs)}
        raise Underivable(todo, json.dumps(document, indent=1))
    fed = tuple(TensorInput(one.name, one.dtype, (_field(one, alone=len(inputs) == 1),)) for one in inputs)
    return Signature(fed, (Output(None, outputs[0].name),))


def _field(tensor: Tensor, *, alone: bool) -> InputField:
    width = tensor.shape[1]
    assert isinstance(width, int)
    return InputField(tensor.name, tensor.dtype, array=width if alone or width > 1 else None)


def _input_doubt(tensor: Tensor) -> str | None:
    if fault := tensors.shape_fault(tensor):
        return fault
    if tensor.dtype not in DTYPES:
        return f"input {tensor.name!r} is {tensor.dtype}; it must be one of {', '.join(DTYPES)}"
    if not isinstance(tensor.shape[1], int) or tensor.shape[1] < 1:
        return f"input {tensor.name!r} has shape {list(tensor.shape)}: name its fields, or the array field and its length"
    return None


def _output_doubt(outputs: Sequence[Tensor]) -> str | None:
    floats = [one.name for one in outputs if one.dtype in FLOAT_LIMITS]
    if len(outputs) == 1 and floats:
        return None
    named = ", ".join(f"{one.name} ({one.dtype})" for one in outputs)
    return f"which output is the score, and which column of it? The model gives {named or 'nothing'}"


def _tensor_skeleton(tensor: Tensor, alone: bool) -> dict[str, Any]:
    width = tensor.shape[1] if len(tensor.shape) == 2 and isinstance(tensor.shape[1], int) else None
    array = {"name": tensor.name, "array": True, "length": width or BLANK}
    field: Any = tensor.name if width == 1 and not alone else array
    return {"tensor": tensor.name, "dtype": tensor.dtype if tensor.dtype in DTYPES else BLANK, "fields": [field]}


def _output_skeleton(outputs: Sequence[Tensor]) -> dict[str, Any]:
    """The likeliest output: the one with several float columns (a classifier's probabilities), else the first float."""
    likely = [one for one in outputs if one.dtype in (*FLOAT_LIMITS, UNKNOWN)]
    wide = [one for one in likely if len(one.shape) == 2 and one.shape[1] != 1]
    chosen = next(iter(wide + likely), None)
    if chosen is None:
        return {"tensor": BLANK}
    return {"tensor": chosen.name} | ({"index": BLANK} if chosen in wide else {})
