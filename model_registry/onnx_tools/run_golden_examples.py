"""Runs the golden examples through the model before a version is pushed: in one batch, on the CPU, with ONNX Runtime.

A scorer repeats the check with its own decoder and on its own device before it serves the version. The check here only reports
faults earlier.
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model_registry.errors import Refused
from model_registry.onnx_tools import locale_hints, ort_extensions
from model_registry.onnx_tools.onnx_reader import OnnxFile
from model_registry.package import batch_probe, binary_fields, model_outputs
from model_registry.package.dtypes import array_dtype
from model_registry.package.event_tree import look_up
from model_registry.package.golden_examples import GoldenExample, agrees
from model_registry.package.model_inputs import InputAssembler, Tensors, array_from_bytes, neutral_rows, ragged
from model_registry.package.padding import LengthPlan, add_batch_dimension, is_ragged, run_all
from model_registry.package.placeholders import BLANK
from model_registry.package.shapes import VARIES, flatten, format_shape, is_nested, is_open, length_in, with_length
from model_registry.package.signature import InputField, Signature, TensorInput

MISMATCH = (
    f'golden.jsonl and model.onnx must belong together; for a score "{BLANK}" push prints what the model answers, '
    "and `model-registry push --accept` writes it"
)
NO_ROWS = (
    'export it with the batch as its first dimension, read another output, or feed one event at a time ("batch": false), with '
    '-1 in the "shape" of the output for a length that is the answer\'s own'
)
NO_SCORER = "a scorer would fail in the same way; correct the model"
ZEROS = "without golden examples scorers ask it for zeros and empty strings; write golden.jsonl with an event that it answers"


def run(model: Path, signature: Signature, examples: Sequence[GoldenExample], stated: OnnxFile | None = None) -> str:
    """Load the model, check its scores in batches and against golden examples, and return the version of ONNX Runtime.

    Args:
        model: A file that `safety.check` accepted.
        signature: The signature that defines the model's inputs and scores.
        examples: The golden examples; if there are none, the model must score an event of zeros and empty strings.
        stated: The content of the file as `safety.check` returned it; None skips the checks that need it.

    Raises:
        ImportError: ONNX Runtime is not installed.
        Refused: The model does not load or run, a score depends on its batch, or a score differs from the golden example.
    """
    loaded = LoadedOnnxModel(model, signature, stated)
    events = [example.event for example in examples]
    loaded.probe(events)
    if not examples:
        loaded.check_neutral()
    alone = signature.batch_tolerance is not None  # a score that may depend on its batch is compared for the event alone
    scores = [loaded.answers([event])[0] for event in events] if alone else loaded.answers(events)
    for row, (example, answer) in enumerate(zip(examples, scores, strict=True), start=1):
        if not agrees(example.score, answer, example.tolerance):
            message = f"golden example {row} must score {example.score} within {example.tolerance}, but scores {answer}"
            columns = isinstance(answer, list) and not isinstance(example.score, list)
            column_hint = "`index` of the signature's output says which column is the score"
            raise Refused(message, column_hint if columns else MISMATCH)
    loaded.check_batch(events[:1])
    return loaded.version


class LoadedOnnxModel:
    """A model that is loaded in ONNX Runtime. A signature defines the model's inputs and scores.

    Raises:
        ImportError: ONNX Runtime is not installed.
        Refused: The model does not load.
    """

    def __init__(self, model: Path, signature: Signature, stated: OnnxFile | None = None) -> None:
        os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # read at import, so that ONNX Runtime collects and sends nothing
        import onnxruntime as ort

        ort.set_default_logger_severity(
            4
        )  # log no errors, because they are raised and the probe expects some variations to fail
        self.version = str(ort.__version__)
        self._signature = signature
        self._assembler = InputAssembler(signature)
        self._names = list(dict.fromkeys(output.tensor for output in signature.outputs))
        options = ort.SessionOptions()
        if stated and (library := ort_extensions.library(stated)):
            options.register_custom_ops_library(library)
        self._session: Any = self._tried(lambda: ort.InferenceSession(str(model), options, providers=["CPUExecutionProvider"]))
        self._declared = {output.name: output.shape for output in stated.outputs} if stated else {}

    def answers(self, events: Sequence[dict[str, Any]]) -> list[Any]:
        """Return the score of each event in the form of a score record. Raises Refused if the model does not run."""
        return self._answers(decoded(self._signature, events)) if events else []

    def check_neutral(self) -> None:
        """Check that the model scores an event of zeros and empty strings. Raises Refused if the model does not.

        A scorer makes the same check if a version has no golden examples.
        """
        try:
            self._answers(neutral_rows(self._signature))
        except Refused as error:
            raise Refused(str(error), ZEROS if error.hint == NO_SCORER else error.hint) from None

    def _answers(self, tensors: Tensors) -> list[Any]:
        try:
            outputs = self._outputs(tensors)
            self._check_shapes(outputs)
            return model_outputs.read_scores(self._signature, outputs)
        except model_outputs.OutputMismatch as error:
            raise Refused(str(error), "signature.json and model.onnx must belong together") from None

    def probe(self, events: Sequence[dict[str, Any]]) -> None:
        """Check that no event's score depends on the other events in its batch.

        Raises Refused in the same cases as `batch_probe.check_batch_independence`.
        """
        rows = decoded(self._signature, events) if events else None
        batch_probe.check_batch_independence(self._signature, rows, self._run, Refused)

    def _check_shapes(self, outputs: Tensors) -> None:
        """Raise Refused if the answers to the events have different shapes and the signature states no `shape` for them."""
        for output in self._signature.outputs:
            if is_ragged(outputs[output.tensor]) and self._signature.rank(output) is None:
                shapes = sorted({row.shape for row in outputs[output.tensor]}, key=len)
                fault = f"output {output.tensor!r} has the shapes {list(shapes[0])} and {list(shapes[-1])} for two events"
                raise Refused(fault, f'write "shape": {_common(shapes)} in that output; -1 is any length')

    def check_batch(self, event: Sequence[dict[str, Any]]) -> None:
        """Check that every output has one row for each event. Raises Refused if it does not.

        `event` has one event, which is copied to form the batch. If it is empty, a row of zeros and empty strings is copied.
        """
        # The model scores several copies of the event. Their number differs from every first dimension that the model declares,
        # so that the check fails for an output that always has the declared number of rows.
        stated = [tuple(output.shape) for output in self._session.get_outputs() if output.name in self._names]
        if self._signature.alone or all(shape and is_open(shape[0]) for shape in stated):
            return
        count = next(number for number in range(2, len(stated) + 3) if all(number not in shape[:1] for shape in stated))
        neutral = {name: np.repeat(row, count, axis=0) for name, row in neutral_rows(self._signature).items()}
        self._run(decoded(self._signature, [*event] * count) if event else neutral)

    def _outputs(self, tensors: Tensors) -> Tensors:
        """Run the model on the rows of a batch and return the outputs."""
        # If lengths vary, `LengthPlan.plan` divides the batch into several runs of the model.
        if not self._signature.varies and not self._signature.alone:
            return self._run(tensors)
        runs = LengthPlan(self._signature).plan(tensors)
        try:
            return run_all(runs, tensors, lambda part, _: self._run(part), alone=self._signature.alone)
        except ValueError as error:
            hint = 'feed one event at a time ("batch": false) and write -1 for such a length in the "shape" of the output'
            raise Refused(str(error), hint) from None

    def _run(self, tensors: Tensors) -> Tensors:
        rows = len(next(iter(tensors.values())))
        feeds = self._assembler.all_tensors(tensors)
        results = dict(zip(self._names, self._tried(lambda: self._session.run(self._names, feeds)), strict=True))
        if self._signature.alone:
            results = add_batch_dimension(self._signature, results)
        for name, output in results.items():
            if np.shape(output)[:1] != (rows,):
                message = f"output {name!r} has shape {np.shape(output)}, not one row for each of {rows} events"
                raise Refused(message, NO_ROWS)
            self._check_declared(name, np.shape(output))
        return results

    def _check_declared(self, name: str, shape: tuple[int, ...]) -> None:
        """Raise Refused if a row of an output has another shape than the model declares."""
        declared = self._declared.get(name, ())
        whole_row = any(
            output.tensor == name and output.index is None and output.shape is None and not output.top
            for output in self._signature.outputs
        )
        if not whole_row or self._signature.alone or len(declared) != len(shape):
            return
        if any(not is_open(size) and size != real for size, real in zip(declared[1:], shape[1:], strict=True)):
            message = (
                f"the model returns output {name!r} with the shape {format_shape((None, *shape[1:]))}, but declares "
                f"{format_shape(declared)}"
            )
            hint = "correct the shape of that output in the model with the library onnx, or export it with a newer tool"
            raise Refused(message, f"{hint}; then the signature can name the number that is the score")

    def _tried(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except Exception as error:  # noqa: BLE001 - the runtime's errors have no common class but this
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:500]
            message = f"ONNX Runtime {self.version} cannot run the model: {reason}"
            raise Refused(message, locale_hints.hint(reason) or NO_SCORER) from None


def _common(shapes: Sequence[tuple[int, ...]]) -> list[int]:
    """Return the `shape` for the signature that fits all these answers, with -1 for each length that differs.

    The shapes must be sorted by rank.
    """
    # Different ranks show that the first dimension is a length: it was 1 in the answers of lower rank, and was therefore taken
    # for the batch and removed.
    full = [shape for shape in shapes if len(shape) == len(shapes[-1])]
    lengths = [sizes[0] if len(set(sizes)) == 1 else VARIES for sizes in zip(*full, strict=True)]
    return lengths if len(full) == len(shapes) else [VARIES, *lengths[1:]]


def fed(signature: Signature, events: Sequence[dict[str, Any]]) -> Tensors:
    """Return the model's input tensors for these events, by tensor name, constants included."""
    return InputAssembler(signature).all_tensors(decoded(signature, events))


def decoded(signature: Signature, events: Sequence[dict[str, Any]]) -> Tensors:
    """Return the values of B events for each input tensor with fields: an array (B, n), by the name of the tensor."""
    return {tensor.tensor: _rows(tensor, events) for tensor in signature.fed}


def _rows(tensor: TensorInput, events: Sequence[dict[str, Any]]) -> NDArray[Any]:
    """Return the rows (B, width) of a tensor; an object array (B,) of arrays if the tensor has a varying length."""
    if tensor.varies:
        return ragged((_row(tensor, look_up(event, tensor.fields[0].steps)) for event in events), len(events))
    rows = [[value for field in tensor.fields for value in _values(field, event)] for event in events]
    return np.array(rows, array_dtype(tensor.dtype)).reshape(len(events), tensor.width)


def _row(tensor: TensorInput, value: Any) -> NDArray[Any]:
    """Return the row of a tensor of varying length from one event's value; an empty row for None.

    The value is an array, or base64 for a field of bytes.
    """
    shape = tensor.shape or ()
    if tensor.fields[0].raw:
        return array_from_bytes(binary_fields.from_base64(value or ""), tensor.fields[0])
    value = value or []
    elements = flatten(value, len(shape)) if is_nested(value) else value
    return np.array(elements, array_dtype(tensor.dtype)).reshape(with_length(shape, length_in(value, shape) or 0))


def _values(field: InputField, event: dict[str, Any]) -> list[Any]:
    value = look_up(event, field.steps)
    if field.raw and field.dtype == "string" and value is not None:
        return [binary_fields.from_base64(value).decode()]
    if field.array is None:
        return [field.default if value is None else value]
    if value is None:
        return [field.default] * field.array
    if field.raw:
        return list(array_from_bytes(binary_fields.from_base64(value), field))
    return flatten(value, len(field.shape)) if field.shape and is_nested(value) else list(value)
