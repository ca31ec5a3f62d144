"""Removes the final ZipMap of a classifier, so that the probabilities are a tensor instead of a sequence of maps.

ZipMap is an operator that labels probabilities with class names. CatBoost always exports it, and
scikit-learn's exporter does so by default. This module needs the library `onnx`, which may not be installed.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from model_registry.errors import Refused
from model_registry.onnx_tools import locale_hints
from model_registry.onnx_tools.onnx_reader import OnnxFile

DOMAIN = "ai.onnx.ml"
NAME = "ZipMap"
ROWS = 3
SHOWN = 10  # most class names in a note
SHOWN_CHARACTERS = 200  # most characters of an error message in a note


@dataclass(frozen=True, slots=True)
class Unzipped:
    """A model without its final ZipMap operators.

    Attributes:
        data: The bytes of the model.
        classes: For each changed output, by name, the class names of its columns; empty if the ZipMap stated none.
    """

    data: bytes
    classes: dict[str, list[Any]]


def is_in(model: OnnxFile) -> bool:
    """Return whether a model uses the operator ZipMap."""
    return (DOMAIN, NAME) in model.operators


def without(path: Path) -> Unzipped | None:
    """Return a copy of a model in which each output of a final ZipMap is replaced by the ZipMap's input.

    Returns None if no output of the model comes from a ZipMap.

    Raises:
        ImportError: The library `onnx` is not installed.
    """
    import onnx
    from onnx import helper

    model = onnx.load(str(path), load_external_data=False)
    outputs = {output.name: output for output in model.graph.output}
    zipmaps = [node for node in model.graph.node if (node.domain, node.op_type) == (DOMAIN, NAME) and node.output[0] in outputs]
    if not zipmaps:
        return None
    classes: dict[str, list[Any]] = {}
    firsts = [tensor.type.tensor_type.shape.dim[:1] for tensor in model.graph.input]
    batch = 1 if firsts and all(dim and dim[0].dim_value == 1 for dim in firsts) else None
    for node in zipmaps:
        stated = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
        names = stated.get("classlabels_int64s") or [label.decode() for label in stated.get("classlabels_strings", ())]
        name = node.output[0]
        classes[name] = list(names)
        outputs[name].CopyFrom(helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [batch, len(names) or None]))
        node.CopyFrom(helper.make_node("Identity", [node.input[0]], [name]))
    return Unzipped(model.SerializeToString(), classes)


def compare(path: Path, unzipped: Unzipped) -> str:
    """Compare the probabilities of a model with those of its copy without ZipMap, on generated rows.

    Returns:
        The reason why the models could not be compared; an empty string if their probabilities are equal.

    Raises:
        Refused: The probabilities differ.
    """
    try:
        import onnxruntime as ort
    except ImportError:
        return "ONNX Runtime is not installed here"
    ort.set_default_logger_severity(4)
    try:
        before, after = (
            ort.InferenceSession(model, providers=["CPUExecutionProvider"]) for model in (str(path), unzipped.data)
        )
        rows = {tensor.name: _rows(tensor) for tensor in before.get_inputs()}
        maps = dict(zip([output.name for output in before.get_outputs()], before.run(None, rows), strict=True))
        numbers = dict(zip(unzipped.classes, after.run(list(unzipped.classes), rows), strict=True))
    except Exception as error:  # noqa: BLE001 - ONNX Runtime's errors have no common class; generated rows may not suit
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:SHOWN_CHARACTERS]
        return locale_hints.hint(str(error)) or f"ONNX Runtime cannot run the model on generated rows: {reason}"
    for name, names in unzipped.classes.items():
        expected = np.array([[row.get(label) for label in names] for row in maps[name]], np.float32)
        if not np.array_equal(numbers[name], expected, equal_nan=True):
            raise Refused(
                f"output {name!r} has different numbers after its ZipMap was removed", "export the model without ZipMap"
            )
    return ""


def _rows(stated: Any) -> Any:
    """Generate rows for an input; `stated` is ONNX Runtime's description of the input."""
    shape = [size if isinstance(size, int) else 1 for size in stated.shape]
    if shape and not isinstance(stated.shape[0], int):
        shape[0] = ROWS
    if "string" in stated.type:
        return np.full(shape, "a", object)
    kind = {"tensor(float)": "float32", "tensor(double)": "float64"}.get(stated.type)
    if kind is None:
        return np.ones(shape, stated.type.removeprefix("tensor(").removesuffix(")"))
    return np.random.default_rng(1).normal(size=shape).astype(kind)


def note(unzipped: Unzipped, uncompared: str) -> str:
    """Describe the removal of the ZipMap in one line; `uncompared` is the result of `compare`."""
    inputs = "; ".join(
        f"output {name!r} has a column for each class: {_listed(names)}" if names else f"output {name!r} names no classes"
        for name, names in unzipped.classes.items()
    )
    checked = f"the numbers were not compared: {uncompared}" if uncompared else "the numbers are the same"
    return f"the final ZipMap was removed ({checked}): {inputs}"


def _listed(names: list[Any]) -> str:
    return ", ".join(map(str, names[:SHOWN])) + (", ..." if len(names) > SHOWN else "")
