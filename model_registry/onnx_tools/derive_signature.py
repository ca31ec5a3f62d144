"""The signature of a model that comes without one, worked out from its inputs and outputs; where that is ambiguous, a skeleton.

Unambiguous is: only the batch is open of every input's shape. Each takes the event field of its own name, an array of as many
elements; a scalar where the shape is (B,), or (B, 1) beside other inputs. And the one output is a float, of any shape.
"""

import json
import math
from collections.abc import Sequence
from typing import Any

from model_registry.onnx_tools import tensors
from model_registry.onnx_tools.tensors import UNKNOWN, ModelTensor, Shape
from model_registry.package.dtypes import DTYPES, FLOAT_LIMITS
from model_registry.package.placeholders import BLANK
from model_registry.package.shapes import MAX_RANK, MAX_WIDTH, VARIES, is_open
from model_registry.package.signature import InputField, Output, Signature, SignatureError, TensorInput


class Underivable(SignatureError):
    """A model whose signature has to be written. `skeleton` is what is known of it, as JSON; `todo` what is to be filled in."""

    def __init__(self, todo: Sequence[str], skeleton: str) -> None:
        super().__init__("; ".join(todo), "model_registry/docs/signature.md describes signature.json")
        self.todo = tuple(todo)
        self.skeleton = skeleton


def derive(inputs: Sequence[ModelTensor], outputs: Sequence[ModelTensor]) -> Signature:
    """The signature, if the model leaves no choice. Raises Underivable, saying what is ambiguous."""
    todo = [doubt for one in inputs if not masked_by(one, inputs) and (doubt := _input_doubt(one))]
    if not inputs:
        todo.append("the model has no inputs")
    if doubt := _output_doubt(outputs):
        todo.append(doubt)
    if todo:
        skeletons = [skeleton(one, inputs) for one in inputs]
        document = {"inputs": skeletons, "output": _output_skeleton(outputs)}
        raise Underivable(todo, json.dumps(document, indent=1))
    fed = tuple(_fed(one, alone=len(inputs) == 1) for one in inputs)
    return Signature(fed, (Output(None, outputs[0].name, shape=answer_shape(outputs[0])),))


def answer_shape(tensor: ModelTensor) -> tuple[int, ...] | None:
    """The shape to state of an output, open lengths as -1; None where a number or a row says enough."""
    row = tuple(-1 if is_open(size) else int(size or 0) for size in tensor.shape[1:])
    return row if 2 <= len(row) <= MAX_RANK and 0 < math.prod(map(abs, row)) <= MAX_WIDTH else None


def _fed(tensor: ModelTensor, *, alone: bool) -> TensorInput:
    """An input of which only the batch is open, from one field."""
    row = tuple(int(size or 0) for size in tensor.shape[1:])
    width = math.prod(row)
    array = width if row and (alone or width > 1 or len(row) > 1) else None
    field = InputField(tensor.name, tensor.dtype, array=array, shape=row if len(row) > 1 else None)
    return TensorInput(tensor.name, tensor.dtype, (field,), None if len(row) == 1 else row)


def _input_doubt(tensor: ModelTensor) -> str | None:
    if fault := tensors.shape_fault(tensor):
        return fault
    if tensor.dtype not in DTYPES:
        return f"input {tensor.name!r} is {tensor.dtype}; it must be one of {', '.join(DTYPES)}"
    row = tensor.shape[1:]
    if any(is_open(size) or size == 0 for size in row):
        return f"input {tensor.name!r} has shape {list(tensor.shape)}: {_open_doubt(row)}"
    if len(row) > MAX_RANK or math.prod(int(size or 0) for size in row) > MAX_WIDTH:
        most = f"at most {MAX_WIDTH} elements in {MAX_RANK} dimensions are fed"
        return f"input {tensor.name!r} has shape {list(tensor.shape)}; {most} of an event"
    return None


def _open_doubt(row: Shape) -> str:
    """What to write of a row with open dimensions."""
    what = "name its fields, or the array field and its length" if len(row) == 1 else 'write the open dimensions in "shape"'
    if sum(map(_is_blank, row)) > 1:
        return f"{what}; one of them may vary from event to event, -1"
    bound = 'such as {"name": ..., "array": true, "max_length": 512}, and "pad" if the model has a mask'
    return f"{what}; or, where it varies from event to event, keep -1 and say how long it may be, {bound}"


def _is_blank(size: int | str | None) -> bool:
    """Whether a model leaves a dimension open; some say so by 0."""
    return is_open(size) or size == 0


def _output_doubt(outputs: Sequence[ModelTensor]) -> str | None:
    floats = [one.name for one in outputs if one.dtype in FLOAT_LIMITS]
    if len(outputs) == 1 and floats:
        return None
    named = ", ".join(f"{one.name} ({one.dtype})" for one in outputs)
    odd = next((f"; {one.name!r} is no tensor: {tensors.remedy(one)}" for one in outputs if not tensors.is_tensor(one)), "")
    return f"which output is the score, and which column of it? The model gives {named or 'nothing'}{odd}"


def _varying_skeleton(tensor: ModelTensor, inputs: Sequence[ModelTensor]) -> dict[str, Any] | None:
    """An input of which the batch and one dimension are open, or a mask of such a one; None: it is another."""
    row = tensor.shape[1:]
    if not tensor.shape or not is_open(tensor.shape[0]) or sum(map(_is_blank, row)) != 1 or tensor.dtype not in DTYPES:
        return None
    known: dict[str, Any] = {"tensor": tensor.name, "dtype": tensor.dtype}
    if masked := masked_by(tensor, inputs):
        return mask(tensor, masked[0])
    field = {"name": tensor.name, "array": True, "max_length": BLANK}
    known |= {"shape": [VARIES if _is_blank(size) else size for size in row], "fields": [field]}
    masked_too = any(tensor in masked_by(one, inputs) for one in inputs)
    return known | ({"pad": pad_gap(tensor.dtype)} if masked_too else {})


def mask(tensor: ModelTensor, masked: ModelTensor) -> dict[str, Any]:
    """A mask of another input, with a gap for its polarity: neither names nor shapes tell it."""
    gap = f"{BLANK}: values if the mask is 1 (true) at values, padding if it is 1 (true) at padding"
    return {"tensor": tensor.name, "dtype": tensor.dtype, "mask_of": masked.name, "marks": gap}


def pad_gap(dtype: str) -> str:
    """A gap for the value of padding."""
    example = '""' if dtype == "string" else "false" if dtype == "bool" else "0"
    return f"{BLANK}: the value that the model was trained to see as padding, such as {example}; without pad nothing is padded"


def masked_by(tensor: ModelTensor, inputs: Sequence[ModelTensor]) -> list[ModelTensor]:
    """The inputs whose padding a tensor tells, if its name and its shape say so."""
    if "mask" not in tensor.name or len(tensor.shape) != 2 or not _is_blank(tensor.shape[1]):
        return []
    return [one for one in inputs if one.shape[:2] == tensor.shape and "mask" not in one.name]


def skeleton(tensor: ModelTensor, inputs: Sequence[ModelTensor]) -> dict[str, Any]:
    """An input of a document as the model states it, with gaps; `inputs` are all that the model has."""
    return _varying_skeleton(tensor, inputs) or tensor_skeleton(tensor, len(inputs) == 1)


def tensor_skeleton(tensor: ModelTensor, alone: bool) -> dict[str, Any]:
    """An input of a document as the model states it, with gaps. `alone`: it has no other."""
    dtype = tensor.dtype if tensor.dtype in DTYPES else BLANK
    shape = [BLANK if _is_blank(size) else size for size in tensor.shape]
    if not tensor.shape or not is_open(tensor.shape[0]):
        whole = {"tensor": tensor.name, "dtype": dtype, "shape": shape}
        if alone and shape[:1] == [1]:
            return whole | {"fields": [{"name": tensor.name, "array": True}], "batch": False}
        return whole | {"value": BLANK, "batch": False}
    row = shape[1:]
    if len(row) == 1:
        array = {"name": tensor.name, "array": True, "length": row[0]}
        return {"tensor": tensor.name, "dtype": dtype, "fields": [tensor.name if row == [1] and not alone else array]}
    field: Any = {"name": tensor.name, "array": True} if row else tensor.name
    return {"tensor": tensor.name, "dtype": dtype, "shape": row, "fields": [field]}


def _output_skeleton(outputs: Sequence[ModelTensor]) -> dict[str, Any]:
    """The likeliest output: the one with several float columns (a classifier's probabilities), else the first float."""
    likely = [one for one in outputs if one.dtype in (*FLOAT_LIMITS, UNKNOWN)]
    wide = [one for one in likely if len(one.shape) == 2 and one.shape[1] != 1]
    chosen = next(iter(wide + likely), None)
    if chosen is None:
        return {"tensor": BLANK}
    return {"tensor": chosen.name} | ({"index": BLANK} if chosen in wide else {})
