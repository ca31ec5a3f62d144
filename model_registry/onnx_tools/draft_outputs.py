"""Drafts the outputs of a signature from a model's outputs and the labels of their columns.

A *gap* in a draft is a placeholder text (FILL IN) for a decision that the user must make.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from model_registry.errors import Refused
from model_registry.onnx_tools.declared_tensors import UNKNOWN, ModelTensor, is_batch, is_name, is_tensor, remedy
from model_registry.onnx_tools.derive_signature import answer_shape
from model_registry.package.dtypes import DTYPES, FLOAT_LIMITS
from model_registry.package.placeholders import BLANK
from model_registry.package.shapes import VARIES, format_shape, is_open

TOP = 3  # number of top classes that a draft puts into the score


def draft_answer_to_one(tensors: Sequence[ModelTensor], inputs: Sequence[ModelTensor], labels: Sequence[str]) -> dict[str, Any]:
    """Draft the keys `output`, `labels` and `decision` of signature.json for a model that takes one event at a time.

    Raises:
        Refused: No output can be a score.
    """
    # An open first dimension of an output is either the length of the answer or a batch of one. It is the length if an input
    # has the same open first dimension, or if no input has an open first dimension and its name is not usual for a batch. In
    # all other cases the draft has a placeholder.
    firsts = {tensor.shape[0] for tensor in inputs if tensor.shape and is_open(tensor.shape[0])}
    open_first = [tensor for tensor in tensors if tensor.shape and is_open(tensor.shape[0])]
    answer_length = {
        tensor.name for tensor in open_first if (tensor.shape[0] in firsts if firsts else _is_count(tensor.shape[0]))
    }
    sizes = {size for tensor in inputs for size in tensor.shape if isinstance(size, str)}
    rows = [
        replace(tensor, shape=(1, *tensor.shape) if tensor in open_first or tensor.shape[:1] != (1,) else tensor.shape)
        for tensor in tensors
    ]
    document = draft_answers(rows, labels, alone=True)
    outputs = document["output"] if isinstance(document["output"], list) else [document["output"]]
    for output in outputs:
        tensor = next((candidate for candidate in open_first if candidate.name == output["tensor"]), None)
        if tensor and "top" not in output:
            row = [VARIES if is_open(size) else size for size in tensor.shape]
            gap = f"{BLANK}: {row} where the answer has any length, {row[1:]} where its first dimension is a batch of one"
            output.pop("index", None)
            output["shape"] = row if tensor.name in answer_length else gap
        elif "top" not in output:
            tensor = next(candidate for candidate in rows if candidate.name == output["tensor"])
            if len(tensor.shape) == 2 and tensor.shape[1] in sizes:  # the output is as long as the event
                output.pop("index", None)
                output["shape"] = [VARIES]
    return document


def _is_count(size: object) -> bool:
    """Return whether an output's first dimension is the length of the answer and not the batch, judged by its name `size`."""
    # The usual name of a batch shows nothing: converters write it even for a model that takes one event at a time.
    return is_name(size) and not is_batch(size)


def draft_answers(tensors: Sequence[ModelTensor], labels: Sequence[str], *, alone: bool = False) -> dict[str, Any]:
    """Draft the keys `output`, `labels` and `decision` of signature.json.

    Outputs without a batch dimension, and outputs that are no tensors, are left out. `alone` states whether the model takes one
    event at a time.

    Raises:
        Refused: No output remains, or no remaining output can be a score.
    """
    # An open first dimension is a batch. A first dimension of size 1 is a batch if `alone` is true, or if no output has an open
    # first dimension.
    batched = [tensor for tensor in tensors if not tensor.shape or is_open(tensor.shape[0]) or (alone and tensor.shape[0] == 1)]
    batched = batched or [tensor for tensor in tensors if tensor.shape[:1] == (1,)]  # of a model that takes one event at a time
    read = [tensor for tensor in batched if tensor.dtype in (*DTYPES, UNKNOWN)]
    described = ", ".join(f"{tensor.name}: {tensor.dtype} {format_shape(tensor.shape)}" for tensor in tensors)
    odd = next((tensor for tensor in tensors if not is_tensor(tensor)), None)
    if not read:
        hint = f"{remedy(odd)}; with a dynamic first axis" if odd else "export the model with a dynamic first axis"
        raise Refused(f"no output of the model is a tensor with a batch dimension ({described})", hint)
    floats = [tensor for tensor in read if tensor.dtype in (*FLOAT_LIMITS, UNKNOWN)]
    if odd and not floats:
        fault = f"output {odd.name!r} is {odd.dtype}, not a tensor, and the others have no score ({described})"
        raise Refused(fault, remedy(odd))
    if labels:
        return _labelled(floats, labels)
    if len(tensors) == 1:
        return {"output": _output(read[0])}
    if len(read) == 1 or len(floats) == 1:
        floats = floats or read
        wide = len(floats[0].shape) == 2 and floats[0].shape[1] != 1
        gap = {"index": f"{BLANK}: the column that is the score, from 0; without index it is the whole row"} if wide else {}
        return {"output": _output(floats[0]) | gap}
    return {"output": [{"name": tensor.name} | _output(tensor) for tensor in floats or read]}


def _labelled(floats: Sequence[ModelTensor], labels: Sequence[str]) -> dict[str, Any]:
    """Draft the keys `output`, `labels` and `decision` for a model whose float outputs (`floats`) have labels for columns."""
    # If exactly one output has a column for each label, the score has its top classes, and the other outputs whole. Otherwise
    # the name of the output is a placeholder.
    fitting = [tensor for tensor in floats if tensor.shape[1:] == (len(labels),)]
    fitting = fitting or [tensor for tensor in floats if len(tensor.shape) == 2 and is_open(tensor.shape[1])]
    rest: dict[str, Any] = {"labels": list(labels), "decision": {"argmax": True}}
    if len(fitting) != 1:
        gap = f"{BLANK}: the tensor of (B, {len(labels)}) numbers, one a label"
        return {"output": {"tensor": gap, "top": min(TOP, len(labels))}} | rest
    classes: dict[str, Any] = {"tensor": fitting[0].name, "top": min(TOP, len(labels))}
    if len(floats) == 1:
        return {"output": classes} | rest
    named = [{"name": tensor.name} | (classes if tensor is fitting[0] else _output(tensor)) for tensor in floats]
    return {"output": named, "labels": list(labels), "decision": {"argmax": True, "output": fitting[0].name}}


def _output(tensor: ModelTensor) -> dict[str, Any]:
    shape = answer_shape(tensor)
    return {"tensor": tensor.name} | ({} if shape is None else {"shape": list(shape)})
