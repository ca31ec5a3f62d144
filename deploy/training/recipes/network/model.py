"""The multilayer perceptron: the shapes of its weights, their initial values, and its computation.

All weights are one flat vector; each embedding table and each layer is a view of a range of this vector. torch is imported on
demand, because the other parts of the recipe work without torch.
"""

from collections.abc import Sequence
from itertools import pairwise
from math import isqrt, prod
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from training.recipes.network.encoding import TensorEncodings

SHARDS = 8
"""The number of shards of a batch. The gradient of each shard is computed separately, for any number of processes."""
WEIGHTS, ORDER, MASKS = range(3)  # parts of the keys of `chance`: the purposes of random numbers
HIDDEN_SHARE = 0.02  # the share of names that training replaces by the unknown name, to learn its embedding
MAX_DIMENSIONS = 16
Shape = tuple[int, ...]


class Parameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The parameters of the recipe `network`."""

    width: Annotated[int, Meta(ge=1, le=4096)] = 64
    """Units of a hidden layer."""
    depth: Annotated[int, Meta(ge=1, le=8)] = 2
    """Hidden layers."""
    learning_rate: Annotated[float, Meta(gt=0, le=1)] = 1e-3
    dropout: Annotated[float, Meta(ge=0, le=0.9)] = 0.0
    weight_decay: Annotated[float, Meta(ge=0, le=1)] = 1e-4
    batch: Annotated[int, Meta(ge=SHARDS, le=1 << 20)] = 1024
    """Rows per step."""


def chance(*of: int) -> np.random.Generator:
    """Return a random generator that is seeded by a key, such as (seed, MASKS, epoch, step, shard).

    Generators with different keys are independent.
    """
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(of)))


def shapes(encoding: TensorEncodings, parameters: Parameters, outputs: int = 1) -> list[Shape]:
    """Return the shapes of all weights of a network with so many outputs.

    The embedding table of each string column comes first, with the shape (number of known names + 1, dimensions). Then come the
    weights (out, in) and the bias (out,) of each layer.
    """
    tables = [(len(vocabulary) + 1, min(MAX_DIMENSIONS, 1 + isqrt(len(vocabulary)))) for vocabulary in encoding.vocabularies]
    widths = [encoding.width + sum(table[1] for table in tables), *[parameters.width] * parameters.depth, outputs]
    layers: list[Shape] = [shape for into, out in pairwise(widths) for shape in ((out, into), (out,))]
    return [*tables, *layers]


def views(flat: Any, layout: Sequence[Shape]) -> list[Any]:
    """Return views of a flat numpy or torch vector with the shapes in `layout`, without a copy."""
    ends = np.cumsum([prod(shape) for shape in layout]).tolist()
    return [flat[end - prod(shape) : end].reshape(shape) for end, shape in zip(ends, layout, strict=True)]


def first(layout: Sequence[Shape], tables: int, seed: int) -> NDArray[np.float32]:
    """Return random initial weights as one flat float32 vector.

    All biases are zero. The first row of each embedding table, which is the embedding of unknown names, is also zero.

    Args:
        layout: The shapes of all weights. The embedding tables come first.
        tables: The number of embedding tables.
        seed: The seed of the random numbers.
    """
    draw = chance(seed, WEIGHTS)
    parts = []
    for at, shape in enumerate(layout):
        bound = np.sqrt(6 / shape[-1]) if tables <= at < len(layout) - 2 else 1 / np.sqrt(shape[-1])
        part = draw.uniform(-bound, bound, shape) if len(shape) == 2 else np.zeros(shape)
        if at < tables:
            part[0] = 0
        parts.append(part.ravel())
    return np.concatenate(parts).astype(np.float32)


def forward(weights: Sequence[Any], numbers: Any, names: Any, masks: Sequence[Any] = ()) -> Any:
    """Return the outputs of the network for numbers (B, n) and indices of names (B, c) int64.

    The result is (B,) if the network has one output, else (B, outputs). Weights and numbers have the same dtype.

    `masks` are the factors by which the outputs of each hidden layer are multiplied (dropout); empty for none.
    """
    import torch
    from torch.nn import functional

    tables = [functional.embedding(names[:, at], weights[at]) for at in range(names.shape[1])]
    layers = weights[names.shape[1] :]
    hidden = torch.cat([numbers, *tables], dim=1)
    for at in range(0, len(layers) - 2, 2):
        hidden = functional.relu(functional.linear(hidden, layers[at], layers[at + 1]))
        hidden = hidden * masks[at // 2] if masks else hidden
    outputs = functional.linear(hidden, layers[-2], layers[-1])
    return outputs.squeeze(1) if outputs.shape[1] == 1 else outputs


def settled() -> Any:
    """Import torch and make it deterministic: one thread, and an error for an operation that is not deterministic."""
    import torch

    torch.set_num_threads(1)
    torch.set_deterministic_debug_mode("error")  # like use_deterministic_algorithms, which takes a second to import a compiler
    torch.utils.deterministic.fill_uninitialized_memory = False
    return torch
