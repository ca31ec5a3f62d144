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
from model_registry.package.dtypes import held
from model_registry.package.event_tree import look_up
from model_registry.package.feeding import Feeding, ragged
from model_registry.package.golden import Golden, agrees
from model_registry.package.lengths import Lengths, as_row, together
from model_registry.package.shapes import filled, flat, is_nested, length_in
from model_registry.package.signature import InputField, Output, Signature, TensorInput


def run(model: Path, signature: Signature, examples: Sequence[Golden]) -> str:
    """Load the model, score the examples and compare; the version of ONNX Runtime that did. Loads what `safety` let pass.

    Raises ImportError: ONNX Runtime is not installed; Refused: the model does not load or score, or an example is off.
    """
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # read at import: nothing is collected, written or sent
    import onnxruntime as ort

    ort.set_default_logger_severity(3)
    names = list(dict.fromkeys(output.tensor for output in signature.outputs))
    try:
        session = ort.InferenceSession(str(model), providers=["CPUExecutionProvider"])
        outputs = _outputs(session, names, signature, [example.event for example in examples]) if examples else {}
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
    return Feeding(signature).all(_decoded(signature, events))


def _outputs(
    session: Any, names: Sequence[str], signature: Signature, events: Sequence[dict[str, Any]]
) -> dict[str, NDArray[Any]]:
    """The outputs of these names for some events: in one run, or as many as their lengths need."""
    feeding, tensors = Feeding(signature), _decoded(signature, events)

    def run(part: dict[str, NDArray[Any]], _: int = 0) -> dict[str, NDArray[Any]]:
        found = dict(zip(names, session.run(names, feeding.all(part)), strict=True))
        return as_row(found) if signature.alone else found

    grouped = signature.varies or signature.alone
    return together(Lengths(signature).runs(tensors), tensors, run) if grouped else run(tensors)


def _decoded(signature: Signature, events: Sequence[dict[str, Any]]) -> dict[str, NDArray[Any]]:
    return {tensor.tensor: _rows(tensor, events) for tensor in signature.fed}


def _rows(tensor: TensorInput, events: Sequence[dict[str, Any]]) -> NDArray[Any]:
    """The (B, width) rows of a tensor; where its length varies each is an array of its own."""
    if tensor.varies:
        return ragged((_row(tensor, look_up(event, tensor.fields[0].steps) or []) for event in events), len(events))
    rows = [[value for field in tensor.fields for value in _values(field, event)] for event in events]
    return np.array(rows, held(tensor.dtype)).reshape(len(events), tensor.width)


def _row(tensor: TensorInput, value: list[Any]) -> NDArray[Any]:
    """An array as the tensor has it, its length as it comes."""
    shape = tensor.shape or ()
    elements = flat(value, len(shape)) if is_nested(value) else value
    return np.array(elements, held(tensor.dtype)).reshape(filled(shape, length_in(value, shape) or 0))


def score(signature: Signature, outputs: dict[str, NDArray[Any]], row: int) -> Any:
    """One row's score as `signature.json` reads it: a number, a list, or an object of them."""
    read = {output.name: _read(output, outputs[output.tensor], row) for output in signature.outputs}
    return read[None] if list(read) == [None] else read


def _values(field: InputField, event: dict[str, Any]) -> list[Any]:
    value = look_up(event, field.steps)
    if field.array is None:
        return [field.default if value is None else value]
    if value is None:
        return [field.default] * field.array
    return flat(value, len(field.shape)) if field.shape and is_nested(value) else list(value)


def _read(output: Output, values: NDArray[Any], row: int) -> Any:
    if np.shape(values)[:1] <= (row,):
        raise Refused(f"output {output.tensor!r} has shape {np.shape(values)}, which is not one row for each event")
    if output.index is not None:
        if values.ndim != 2 or output.index >= values.shape[1]:
            raise Refused(f"output {output.tensor!r} has shape {values.shape}, and no column {output.index}")
        return values[row, output.index].item()
    return values[row].reshape(-1)[0].item() if values.size == len(values) else values[row].tolist()
