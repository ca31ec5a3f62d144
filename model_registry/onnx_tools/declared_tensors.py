"""The inputs and outputs that a model declares, and the checks whether a signature fits them.

A dimension is *open* if the model states no fixed size for it.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from model_registry.package.dtypes import DTYPES
from model_registry.package.shapes import VARIES, fits, format_shape, is_open, may_be_equal
from model_registry.package.signature import Argmax, Output, Signature, TensorInput

UNKNOWN = "unknown"  # stands for the dtype of an output for which the file states none; the runtime infers it
MAPS = "a sequence of maps"  # the output of the operator ZipMap: maps from classes to probabilities
MADE_UP = re.compile(r"unk|dim|\d")  # occurs in the names that exporters generate for axes of outputs
BATCHES = ("b", "n", "batch", "batch_size", "batchsize", "none")
Shape = tuple[int | str | None, ...]


@dataclass(frozen=True, slots=True)
class ModelTensor:
    """An input or output that a model declares.

    Attributes:
        name: The name in the model.
        dtype: Numpy's name of the dtype; UNKNOWN if the model states none; or a description, such as MAPS, if the input or
            output is not a tensor.
        shape: The size of each dimension. An open dimension is None, a name or a negative number.
    """

    name: str
    dtype: str
    shape: Shape


def find_fault(signature: Signature, inputs: Iterable[ModelTensor], outputs: Iterable[ModelTensor]) -> str | None:
    """Return the reason why a signature does not fit a model with these inputs and outputs; None if it fits."""
    # The signature must have every input with the declared dtype and shape. Every output that it reads must be a tensor of a
    # fitting shape.
    declared = {tensor.tensor: tensor for tensor in signature.inputs}
    model_inputs = {tensor.name: tensor for tensor in inputs}
    if set(declared) != set(model_inputs):
        return f"the signature feeds the inputs {sorted(declared)}, but the model has the inputs {sorted(model_inputs)}"
    faults = [input_fault(tensor, model_inputs[name]) for name, tensor in declared.items()]
    model_outputs = {tensor.name: tensor for tensor in outputs}
    return (
        next(filter(None, faults), None)
        or _output_fault(signature, model_outputs)
        or _length_fault(signature, model_inputs, model_outputs)
    )


def is_tensor(output: ModelTensor) -> bool:
    """Return whether an output is a tensor of a dtype that scores may have, or of an unknown dtype."""
    return output.dtype in (*DTYPES, UNKNOWN)


def remedy(output: ModelTensor) -> str:
    """Return advice on how to export a model again, for an output of the model that `is_tensor` rejects."""
    if output.dtype == MAPS:
        options = "scikit-learn: options={id(model): {'zipmap': False}}; onnxmltools: zipmap=False"
        return f"export it without ZipMap ({options}), or let `model-registry init` remove it, as for CatBoost"
    if output.dtype == "bfloat16":
        return "export it as float32"
    several = "of several estimators (MultiOutputClassifier) export each as a model, or join their tensors by Concat"
    return f"export it without ZipMap, or, if it has none, with tensors as outputs: {several}"


def first_unreadable(outputs: Iterable[ModelTensor]) -> ModelTensor | None:
    """If no output can be a score, return the first output, else None."""
    stated = list(outputs)
    return stated[0] if stated and not any(map(is_tensor, stated)) else None


def is_name(size: object) -> bool:
    """Return whether a dimension's size is a name that a person chose ("tokens"), not a name from an exporter ("unk__12")."""
    return isinstance(size, str) and not MADE_UP.search(size)


def is_batch(size: object) -> bool:
    """Return whether the size of a dimension is a usual name of the batch dimension, such as "batch_size"."""
    return isinstance(size, str) and size.lower() in BATCHES


def unfeedable_reason(inputs: Iterable[ModelTensor]) -> str | None:
    """Return why an input cannot get its values from events; None if all inputs can."""
    for tensor in inputs:
        if tensor.dtype == "bfloat16":
            return f"input {tensor.name!r} is bfloat16, which no format of events has; export it with float32 or float16"
        if tensor.dtype in (MAPS, "a sequence", "a map", "a sparse tensor", "an optional"):
            return f"input {tensor.name!r} is {tensor.dtype}, which no event can feed; export the model with tensors as inputs"
    return None


def shape_fault(tensor: ModelTensor) -> str | None:
    """Return the reason why an input cannot take batches of different sizes; None if its first dimension is open."""
    if not tensor.shape:
        constant = '{"tensor": ..., "dtype": ..., "value": ..., "batch": false}'
        hint = f'write a constant, {constant}, or feed one event at a time: "fields" and "batch": false'
        return f"input {tensor.name!r} has no batch dimension: its shape is [] or not stated; {hint}"
    if not is_open(tensor.shape[0]):
        hint = 'export it with a dynamic first axis, or feed it a constant or one event at a time ("batch": false)'
        return f"input {tensor.name!r} has the fixed batch size {tensor.shape[0]}; {hint}"
    return None


def input_fault(stated: TensorInput, tensor: ModelTensor) -> str | None:
    """Return the reason why the tensor `stated` in a signature does not fit the model's input; None if it fits."""
    name = stated.tensor
    if tensor.dtype != stated.dtype:
        return f"input {name!r}: the signature states {stated.dtype}, but the model requires {tensor.dtype}"
    if stated.value is None and stated.batch and (find_fault := shape_fault(tensor)):
        return find_fault
    if not fits(stated.full_shape, tensor.shape):
        shape = [None if isinstance(size, int) and size < 0 else size for size in tensor.shape]
        stated_shape = format_shape(stated.full_shape)
        hint = _hint(stated, tensor)
        return f"input {name!r}: the signature states {stated_shape}, but the model requires {shape}{hint}"
    return None


def _hint(stated: TensorInput, tensor: ModelTensor) -> str:
    """Return a text about the key of signature.json that may correct a wrong shape; empty if there is no such key."""
    if not tensor.shape or is_open(tensor.shape[0]) is not stated.batch:
        batch_note = "has no batch dimension" if stated.batch else "has one"
        return f'; "batch" says whether the tensor has a batch dimension, and the model\'s {batch_note}'
    rest = tensor.shape[1:] if stated.batch else tensor.shape
    if len(rest) == 1 and len(stated.row) == 1 and VARIES not in stated.row:
        return ""
    return f'; write "shape": [{", ".join("?" if is_open(size) else str(size) for size in rest)}]'


def _length_fault(signature: Signature, inputs: dict[str, ModelTensor], outputs: dict[str, ModelTensor]) -> str | None:
    """Return the reason why an output whose length varies with an input cannot be a score; None if there is no such output."""
    # The scores of such an output would have a different shape for each event. The model shows it by the same name of both
    # dimensions. It is allowed if the model takes one event at a time, and the signature's `shape` of the output has -1.
    varying = [tensor for tensor in signature.fed if tensor.varies]
    names = {inputs[tensor.tensor].shape[tensor.full_shape.index(VARIES)]: tensor.tensor for tensor in varying}
    for output in signature.outputs:
        if signature.alone and VARIES in (output.shape or ()):
            continue
        shape = outputs[output.tensor].shape
        for size in shape if signature.alone else shape[1:]:
            if isinstance(size, str) and size in names:
                fault = f"output {output.tensor!r} has the length of input {names[size]!r} ({size!r})"
                hint = "let the model output a mean, or the value at one position"
                way = (
                    'write -1 for it in the "shape" of the output'
                    if signature.alone
                    else 'feed one event at a time ("batch": false)'
                )
                return f"{fault}; a score has one shape for all events: {hint}, or {way}"
    return None


def _output_fault(signature: Signature, outputs: dict[str, ModelTensor]) -> str | None:
    for output in signature.outputs:
        if output.tensor not in outputs:
            odd = next(
                (
                    f"; {tensor.name!r} is not a tensor: {remedy(tensor)}"
                    for tensor in outputs.values()
                    if not is_tensor(tensor)
                ),
                "",
            )
            return f"the signature reads output {output.tensor!r}, but the model has the outputs {sorted(outputs)}{odd}"
        if find_fault := output_fault(signature, output, outputs[output.tensor]):
            return find_fault
    return None


def output_fault(signature: Signature, output: Output, tensor: ModelTensor) -> str | None:
    """Return the reason why a model's output does not fit the output in a signature; None if it may fit."""
    # The declared shape [] fits any shape, because a model that states no shape for an output declares [] too.
    name = output.tensor
    dtype = tensor.dtype
    shape = with_batch_dimension(tensor.shape) if signature.alone else tensor.shape
    if not is_tensor(tensor):
        return f"output {name!r} is {dtype}, not a tensor; {remedy(tensor)}"
    width = shape[1] if len(shape) == 2 and not is_open(shape[1]) else None
    if output.index is not None and isinstance(width, int) and not output.index < width:
        return (
            f"output {name!r}: the signature reads column {output.index}, but the model gives {width} columns, counted from 0"
        )
    if output.shape and shape and not may_be_equal(shape[1:], output.shape):
        return (
            f"output {name!r}: the signature states {format_shape((None, *output.shape))}, "
            f"but the model gives {format_shape(shape)}"
        )
    if output.top or (isinstance(signature.decision, Argmax) and output is signature.decided):
        labels = len(signature.labels_of(output))
        if dtype in ("string", "bool"):
            return f"output {name!r} is {dtype}; only a row of numbers has a largest element"
        if shape and (len(shape) != 2 or width not in (None, labels)):
            given = format_shape(shape)
            return f"output {name!r} must have the shape (B, {labels}), one column for each label, but the model gives {given}"
    return None


def with_batch_dimension(shape: Shape) -> Shape:
    """Return the shape of an output for one event, with a batch dimension of size 1 in front if it has none.

    Returns an empty shape, which fits any shape, if the model states no shape. Also returns it if the first dimension is open,
    because that dimension may be the batch.
    """
    if not shape or is_open(shape[0]):
        return ()
    return shape if shape[0] == 1 else (1, *shape)
