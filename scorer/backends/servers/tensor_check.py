"""What a server states of a model's inputs and outputs, against the package's signature."""

from collections.abc import Mapping, Sequence

from model_registry.package.signature import Signature
from scorer.backends import ModelRefused

Stated = Mapping[str, tuple[str, Sequence[int] | None]]
"""Tensor name to dtype (numpy's name, or "string") and shape; -1 is any length, None any shape."""


def check(signature: Signature, inputs: Stated, outputs: Stated) -> None:
    """Raises ModelRefused, naming the tensor and both sides. A server that states nothing is believed."""
    declared = {tensor.tensor: tensor for tensor in signature.inputs}
    if inputs and set(declared) != set(inputs):
        raise ModelRefused(f"the signature feeds {sorted(declared)}, the model's inputs are {sorted(inputs)}")
    for name, (dtype, shape) in inputs.items():
        tensor = declared[name]
        if dtype != tensor.dtype:
            raise ModelRefused(f"input {name!r}: the signature says {tensor.dtype}, the model wants {dtype}")
        if shape is None:
            continue
        if len(shape) != 2 or shape[1] not in (-1, tensor.width):
            raise ModelRefused(f"input {name!r}: the signature gives (B, {tensor.width}), the model wants {list(shape)}")
        if shape[0] != -1:
            raise ModelRefused(f"input {name!r} has the fixed batch size {shape[0]}; export it with a free first axis")
    for output in signature.outputs:
        if outputs and output.tensor not in outputs:
            raise ModelRefused(f"the signature reads output {output.tensor!r}, the model's outputs are {sorted(outputs)}")
