"""Golden examples, answered by the model itself before a version is pushed: one batch, on the CPU, with ONNX Runtime.

A scorer does the same with its own decoder and on its own device before it serves the version; this only finds out sooner.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model_registry.errors import Refused
from model_registry.onnx import extensions
from model_registry.onnx.file import OnnxFile
from model_registry.package import raw
from model_registry.package.dtypes import held
from model_registry.package.event_tree import look_up
from model_registry.package.feeding import Feeding
from model_registry.package.golden import Golden, agrees
from model_registry.package.shapes import flat, is_nested
from model_registry.package.signature import InputField, Output, Signature, TensorInput


def run(model: Path, signature: Signature, examples: Sequence[Golden], stated: OnnxFile | None = None) -> str:
    """Load the model, score the examples and compare; the version of ONNX Runtime that did. Loads what `safety` let pass, which
    found `stated` in the file.

    Raises ImportError: ONNX Runtime is not installed; Refused: the model does not load or score, or an example is off.
    """
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # read at import: nothing is collected, written or sent
    import onnxruntime as ort

    ort.set_default_logger_severity(3)
    options = ort.SessionOptions()
    if stated and (library := extensions.library(stated)):
        options.register_custom_ops_library(library)
    tensors = fed(signature, [example.event for example in examples])
    names = list(dict.fromkeys(output.tensor for output in signature.outputs))
    try:
        session = ort.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
        outputs = dict(zip(names, session.run(names, tensors), strict=True)) if examples else {}
    except Exception as error:  # noqa: BLE001 - the runtime's errors have no common class but this
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:500]
        raise Refused(f"ONNX Runtime {ort.__version__} cannot run the model: {reason}", "no scorer could either") from None
    for row, example in enumerate(examples):
        answer = score(signature, outputs, row)
        if not agrees(example.score, answer, example.tolerance):
            message = f"golden example {row + 1} must score {example.score} within {example.tolerance}, but scores {answer}"
            columns = isinstance(answer, list) and not isinstance(example.score, list)
            which = "`index` of the signature's output says which column is the score"
            raise Refused(message, which if columns else "golden.jsonl and model.onnx must belong together")
    return str(ort.__version__)


def fed(signature: Signature, events: Sequence[dict[str, Any]]) -> dict[str, NDArray[Any]]:
    """What the model is given for some events, by tensor name."""
    return Feeding(signature).all({tensor.tensor: _rows(tensor, events) for tensor in signature.fed})


def _rows(tensor: TensorInput, events: Sequence[dict[str, Any]]) -> NDArray[Any]:
    """The (B, width) rows of a tensor."""
    rows = [[value for field in tensor.fields for value in _values(field, event)] for event in events]
    return np.array(rows, held(tensor.dtype)).reshape(len(events), tensor.width)


def score(signature: Signature, outputs: dict[str, NDArray[Any]], row: int) -> Any:
    """One row's score as `signature.json` reads it: a number, a list, or an object of them."""
    read = {output.name: _read(output, outputs[output.tensor], row) for output in signature.outputs}
    return read[None] if list(read) == [None] else read


def _values(field: InputField, event: dict[str, Any]) -> list[Any]:
    value = look_up(event, field.steps)
    if field.raw and field.dtype == "string" and value is not None:
        return [raw.from_base64(value).decode()]
    if field.array is None:
        return [field.default if value is None else value]
    if value is None:
        return [field.default] * field.array
    if field.raw:
        return list(np.frombuffer(raw.from_base64(value), np.dtype(field.dtype).newbyteorder("<")))
    return flat(value, len(field.shape)) if field.shape and is_nested(value) else list(value)


def _read(output: Output, values: NDArray[Any], row: int) -> Any:
    if np.shape(values)[:1] <= (row,):
        raise Refused(f"output {output.tensor!r} has shape {np.shape(values)}, which is not one row for each event")
    if output.index is not None:
        if values.ndim != 2 or output.index >= values.shape[1]:
            raise Refused(f"output {output.tensor!r} has shape {values.shape}, and no column {output.index}")
        return values[row, output.index].item()
    return values[row].reshape(-1)[0].item() if values.size == len(values) else values[row].tolist()
