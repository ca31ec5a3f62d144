"""Model packages that harm the process that loads them, for tests of the trial process, the fuzzer and fault campaigns.

Each builder writes one `model.onnx` that passes every check of the file's structure and fits SIGNATURE. `HOSTILE` lists the
builders by name. `package` writes a package, which `model-registry push` rejects; tests store the package without that command.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

from tests.support import models

DEEP = 200_000  # levels of the tree; ONNX Runtime 1.31 recurses once per level, and 8 MiB of stack do not suffice
EXPANDED_BYTES = 3_000_000_000
LARGEST_FOLDED = 1_000_000_000  # ONNX Runtime 1.31 folds no constant of more than 1 GiB
STEPS, WIDTH = 600, 8_000  # 600 products of 1e12 operations each
SIGNATURE = {**models.LINEAR, "decision": None}


def deep_tree(path: Path, depth: int = DEEP) -> None:
    """Write a tree that is so deep that ONNX Runtime's recursion overflows the stack while the model is loaded."""
    count = 2 * depth + 1
    inner = np.arange(count) < depth
    node = helper.make_node(
        "TreeEnsembleRegressor",
        ["x"],
        ["y"],
        domain="ai.onnx.ml",
        n_targets=1,
        nodes_treeids=[0] * count,
        nodes_nodeids=list(range(count)),
        nodes_featureids=[0] * count,
        nodes_modes=["BRANCH_LEQ"] * depth + ["LEAF"] * (depth + 1),
        nodes_values=np.where(inner, np.arange(count, dtype=np.float32), 0).tolist(),
        nodes_truenodeids=[*range(depth, 2 * depth), *[0] * (depth + 1)],
        nodes_falsenodeids=[*range(1, depth), 2 * depth, *[0] * (depth + 1)],
        target_treeids=[0] * (depth + 1),
        target_nodeids=list(range(depth, count)),
        target_ids=[0] * (depth + 1),
        target_weights=[1.0] * (depth + 1),
    )
    graph = helper.make_graph([node], "deep", [models.X], [models.Y])
    domains = [*models.OPSET, helper.make_opsetid("ai.onnx.ml", 3)]
    onnx.save(helper.make_model(graph, opset_imports=domains, ir_version=8), str(path))


def expanding(path: Path, size: int = EXPANDED_BYTES) -> None:
    """Write a model: y = a + b + 0, where 0 is the maximum of a tensor of zeros with `size` bytes, made from its shape."""
    nodes = [
        helper.make_node("ConstantOfShape", ["shape"], ["zeros"]),
        helper.make_node("ReduceMax", ["zeros"], ["zero"], keepdims=0),
        helper.make_node("ReduceSum", ["x", "axis"], ["sum"], keepdims=1),
        helper.make_node("Add", ["sum", "zero"], ["y"]),
    ]
    constants = [models.constant("shape", [size // 4], np.int64), models.constant("axis", [1], np.int64)]
    models.save(nodes, [models.X], [models.Y], path, constants)


def folded(path: Path, size: int = EXPANDED_BYTES) -> None:
    """Write a model: y = a + b + 0, where each 0 is read from a tensor of zeros. The tensors have `size` bytes together.

    Constant folding creates the tensors at load and keeps them in memory.
    """
    parts = -(-size // LARGEST_FOLDED)
    nodes = [
        helper.make_node("ReduceSum", ["x", "axis"], ["sum0"], keepdims=1),
        helper.make_node("Cast", ["sum0"], ["any"], to=TensorProto.BOOL),
        helper.make_node("And", ["any", "no"], ["never"]),
        helper.make_node("Cast", ["never"], ["at"], to=TensorProto.INT64),
    ]
    for part in range(parts):
        nodes += [
            helper.make_node("ConstantOfShape", [f"shape{part}"], [f"zeros{part}"]),
            helper.make_node("Gather", [f"zeros{part}", "at"], [f"zero{part}"]),
            helper.make_node("Add", [f"sum{part}", f"zero{part}"], [f"sum{part + 1}"]),
        ]
    nodes.append(helper.make_node("Identity", [f"sum{parts}"], ["y"]))
    # every tensor has another size, because equal tensors are created only once
    shapes = [models.constant(f"shape{part}", [size // parts // 4 + part], np.int64) for part in range(parts)]
    constants = [
        *shapes,
        models.constant("axis", [1], np.int64),
        models.constant("no", False, np.bool_),
    ]
    models.save(nodes, [models.X], [models.Y], path, constants)


def endless(path: Path, steps: int = STEPS, width: int = WIDTH) -> None:
    """Write a model: y = a + b + 0, where 0 is the result of a chain of `steps` products of (width, width) matrices.

    Constant folding computes the products at load. The file has a few kilobytes, and its load takes hours.
    """
    nodes = [helper.make_node("ConstantOfShape", ["shape"], ["product0"])]
    for step in range(steps):
        nodes.append(helper.make_node("MatMul", [f"product{step}", f"product{step}"], [f"product{step + 1}"]))
    nodes += [
        helper.make_node("ReduceMax", [f"product{steps}"], ["zero"], keepdims=0),
        helper.make_node("ReduceSum", ["x", "axis"], ["sum"], keepdims=1),
        helper.make_node("Add", ["sum", "zero"], ["y"]),
    ]
    constants = [models.constant("shape", [width, width], np.int64), models.constant("axis", [1], np.int64)]
    models.save(nodes, [models.X], [models.Y], path, constants)


HOSTILE: dict[str, Callable[[Path], None]] = {
    "deep-tree": deep_tree,
    "expanding": expanding,
    "folded": folded,
    "endless": endless,
}
"""The builders by name. In order, their models overflow the stack at load, take 3 GB at each run, take 3 GB at load, and load
for hours."""


def package(folder: Path, build: Callable[[Path], None]) -> Path:
    """Write the package of a hostile model. `Rig.push_unchecked` stores the package; `model-registry push` rejects it."""
    return models.package(folder, build, SIGNATURE)
