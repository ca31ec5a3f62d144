"""A model's inputs and outputs as its file or its runtime states them, and whether a signature fits them."""

from collections.abc import Iterable
from dataclasses import dataclass

from model_registry.package.signature import DTYPES, Signature, TensorInput

UNKNOWN = "unknown"  # the dtype of an output that the file leaves to the runtime to infer
Shape = tuple[int | str | None, ...]


@dataclass(frozen=True, slots=True)
class Tensor:
    """An input or output: numpy's name of its dtype (or what else it is), and its shape. Free dimensions are None or a name."""

    name: str
    dtype: str
    shape: Shape


def fault(signature: Signature, inputs: Iterable[Tensor], outputs: Iterable[Tensor]) -> str | None:
    """Why a model with these inputs and outputs cannot be served by a signature, or None if it can.

    Every input must be fed, with the model's dtype, as (B, n) with a free B; every output that is read must be a tensor.
    """
    declared = {tensor.tensor: tensor for tensor in signature.inputs}
    found = {tensor.name: tensor for tensor in inputs}
    if set(declared) != set(found):
        return f"the signature feeds {sorted(declared)}, the model's inputs are {sorted(found)}"
    faults = [_input_fault(tensor, found[name]) for name, tensor in declared.items()]
    return next(filter(None, faults), None) or _output_fault(signature, {tensor.name: tensor for tensor in outputs})


def shape_fault(tensor: Tensor) -> str | None:
    """Why no signature can feed an input of this shape, or None if one can."""
    if len(tensor.shape) != 2:
        return f"input {tensor.name!r} has shape {list(tensor.shape)}; events are fed as (B, n)"
    if isinstance(tensor.shape[0], int):
        return f"input {tensor.name!r} has the fixed batch size {tensor.shape[0]}; export it with a dynamic first axis"
    return None


def _input_fault(stated: TensorInput, found: Tensor) -> str | None:
    name, width = stated.tensor, stated.width
    if found.dtype != stated.dtype:
        return f"input {name!r}: the signature says {stated.dtype}, the model wants {found.dtype}"
    if len(found.shape) != 2 or (isinstance(found.shape[1], int) and found.shape[1] != width):
        return f"input {name!r}: the signature gives (B, {width}), the model wants {list(found.shape)}"
    return shape_fault(found)


def _output_fault(signature: Signature, found: dict[str, Tensor]) -> str | None:
    for output in signature.outputs:
        if output.tensor not in found:
            odd = (
                "; one is no tensor: export it without ZipMap"
                if any(t.dtype not in (*DTYPES, UNKNOWN) for t in found.values())
                else ""
            )
            return f"the signature reads output {output.tensor!r}, the model's outputs are {sorted(found)}{odd}"
        dtype, shape = found[output.tensor].dtype, found[output.tensor].shape
        if dtype not in (*DTYPES, UNKNOWN):
            return f"output {output.tensor!r} is {dtype}, not a tensor; export it without ZipMap"
        width = shape[1] if len(shape) == 2 else None
        if output.index is not None and isinstance(width, int) and not output.index < width:
            return f"output {output.tensor!r}: the signature reads column {output.index}, the model gives {width}"
    return None
