"""The signature of a model version: which event field feeds which tensor, and how outputs are read.

The types and their JSON form; `signature_schema.py` parses and checks signature.json.
"""

import math
from dataclasses import asdict, dataclass, field
from typing import Any

import msgspec

from model_registry.errors import Refused
from model_registry.package import json_path, shapes
from model_registry.package.dtypes import Scalar
from model_registry.package.shapes import Shape

VALUES = "values"
PADDING = "padding"
"""The positions at which a mask is 1 or true."""


class SignatureError(Refused):
    """A signature.json that is malformed, incomplete or contradictory."""


@dataclass(frozen=True, slots=True)
class InputField:
    """One field of the event.

    Attributes:
        name: The field's name, unique in a signature.
        dtype: Numpy's name of the tensor's dtype, or "string".
        required: An absent or null value is an error; otherwise it is replaced by `default`.
        default: One value, which replaces every element of an array field.
        array: The number of elements of an array field, the largest one if its length varies; None for a scalar.
        shape: The shape in which the elements may also be nested; -1 is a length that varies. An absent field of varying
            length is empty.
        path: The path of the value in the event; None if it is at the top under the name.
        source: The part of the record that has the value if that is not the event, see field_sources.py.
        raw: The elements come as bytes, see binary_fields.py.
    """

    name: str
    dtype: str
    required: bool = True
    default: Scalar | None = None
    array: int | None = None
    shape: Shape | None = None
    path: tuple[json_path.Step, ...] | None = None
    source: str | None = None
    raw: bool = False

    @property
    def steps(self) -> tuple[json_path.Step, ...]:
        """The path of the value in the event."""
        return self.path or (self.name,)

    @property
    def varies(self) -> bool:
        """Whether it is an array, or bytes, of varying length."""
        return shapes.varies(self.shape)

    @property
    def max_length(self) -> int:
        """The largest length of a field of varying length."""
        return (self.array or 0) // shapes.step_size(self.shape or ())

    @property
    def allows_nan(self) -> bool:
        """Whether NaN is the default, so that the model handles missing numbers."""
        return isinstance(self.default, float) and math.isnan(self.default)


@dataclass(frozen=True, slots=True)
class TensorInput:
    """One input tensor of shape (B, *row): its elements are the fields in order, or those of its one array field.

    Attributes:
        tensor: The name of the model's input.
        dtype: Numpy's name of its dtype, or "string".
        fields: Its fields; empty for a constant, a mask and lengths.
        shape: The row's shape, -1 for the length that varies from event to event; None is (width,).
        value: The value of a constant: one element that fills the row, or nested tuples of the row's shape.
        batch: False if the tensor has no batch dimension. Unless it is a constant, the model then takes one event at a time.
        pad: The value that pads rows to the length of others in their batch; with None only rows of one length are batched.
        axis: Tensors with the same axis have the same length in each event.
        mask_of: The tensor of varying length that this mask belongs to.
        length_of: The tensor of varying length whose lengths this tensor holds.
        marks: Whether the mask is 1 (true) at values or at padding.
    """

    tensor: str
    dtype: str
    fields: tuple[InputField, ...]
    shape: Shape | None = None
    value: Any = None
    batch: bool = True
    pad: Any = None
    axis: str = ""
    mask_of: str | None = None
    length_of: str | None = None
    marks: str = VALUES

    @property
    def varies(self) -> bool:
        """Whether events feed it with rows of varying length."""
        return bool(self.fields) and shapes.varies(self.shape)

    @property
    def width(self) -> int:
        """The number of elements of a row, the largest one if its length varies."""
        return math.prod(self.shape or ()) if self.value is not None else self.fields[0].array or len(self.fields)

    @property
    def row(self) -> Shape:
        """The shape of one event's row."""
        return (self.width,) if self.shape is None else self.shape

    @property
    def full_shape(self) -> tuple[int | None, ...]:
        """The shape of the tensor; None is the batch dimension."""
        return (None, *self.row) if self.batch else self.row


@dataclass(frozen=True, slots=True)
class Output:
    """One output of the score.

    Attributes:
        name: Its name in the score; None for the only output.
        tensor: The name of the model's output.
        index: The column that is the score; None reads the whole row.
        shape: The dimensions after the batch, -1 for any length; without it a row of one element is a number.
        top: Read this many of a row's largest elements, in descending order, each with its label.
        labels: The names of the columns if they differ from the signature's labels.
    """

    name: str | None
    tensor: str
    index: int | None = None
    shape: Shape | None = None
    top: int | None = None
    labels: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """The label of a scalar score at or above the threshold, and below it. `output` names one of several outputs."""

    threshold: float
    at_or_above: str
    below: str
    output: str | None = None


@dataclass(frozen=True, slots=True)
class Argmax:
    """The label of a row's largest number, or `below` if that is below the threshold. `output` names one of several."""

    threshold: float | None = None
    below: str | None = None
    output: str | None = None


@dataclass(frozen=True, slots=True)
class Signature:
    """A model version's contract with the producers of events and the readers of scores.

    Attributes:
        inputs: The model's input tensors.
        outputs: The outputs of the score.
        labels: The names of an output's columns.
        decision: How a score is labelled; None labels none.
        batch_tolerance: The largest difference of a score between batches, see batch_probe.py; None allows rounding only.
        fed: The inputs with fields.
        fields: Every event field once, in the order of the tensors.
    """

    inputs: tuple[TensorInput, ...]
    outputs: tuple[Output, ...]
    labels: tuple[str, ...] | None = None
    decision: Decision | Argmax | None = None
    batch_tolerance: float | None = None
    fed: tuple[TensorInput, ...] = field(init=False, repr=False, compare=False)
    fields: tuple[InputField, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "fed", tuple(tensor for tensor in self.inputs if tensor.fields))
        named = {field.name: field for tensor in self.inputs for field in tensor.fields}
        object.__setattr__(self, "fields", tuple(named.values()))

    @property
    def decided(self) -> Output:
        """The output that the decision reads."""
        name = self.decision.output if self.decision else None
        return next((output for output in self.outputs if output.name == name), self.outputs[0])

    def labels_of(self, output: Output) -> tuple[str, ...]:
        """Return the names of an output's columns; empty if it has none."""
        return output.labels or self.labels or ()

    def rank(self, output: Output) -> int | None:
        """Return the number of an output's dimensions after the batch; None if the signature does not state it."""
        if output.index is not None or output.top or (isinstance(self.decision, Argmax) and output is self.decided):
            return 1
        return None if output.shape is None else len(output.shape)

    @property
    def labelled(self) -> bool:
        """Whether a row is labelled by its largest element without a decision.

        That holds if there are labels and one output, or several outputs of which none has a `top` that the labels may name.
        """
        alone = len(self.outputs) == 1 or not any(output.top for output in self.outputs)
        return self.labels is not None and self.decision is None and alone

    @property
    def varies(self) -> bool:
        """Whether a tensor has a varying length."""
        return any(tensor.varies for tensor in self.fed)

    @property
    def alone(self) -> bool:
        """Whether the model takes one event at a time: a tensor that is no constant has no batch dimension."""
        return any(tensor.value is None and not tensor.batch for tensor in self.inputs)

    def to_json(self) -> str:
        """Return the signature as JSON that `parse_signature` reads back."""
        outputs = [_without_none(asdict(output)) for output in self.outputs]
        document: dict[str, Any] = {
            "inputs": [_tensor_json(tensor) for tensor in self.inputs],
            "output": outputs[0] if self.outputs[0].name is None else outputs,
            "labels": self.labels,
            "decision": None if self.decision is None else _decision_json(self.decision),
        }
        document |= {} if self.batch_tolerance is None else {"batch_tolerance": self.batch_tolerance}
        return msgspec.json.encode(document).decode()


def _tensor_json(tensor: TensorInput) -> dict[str, Any]:
    document: dict[str, Any] = {"tensor": tensor.tensor, "dtype": tensor.dtype}
    if tensor.fields:
        document["fields"] = [_field_json(field) for field in tensor.fields]
    document |= _without_none(
        {"shape": tensor.shape, "value": shapes.map_elements(tensor.value, lambda v: "nan" if v != v else v)}
    )
    document |= {} if tensor.batch else {"batch": False}
    document |= {} if tensor.pad is None else {"pad": shapes.map_elements(tensor.pad, lambda v: "nan" if v != v else v)}
    marks = None if tensor.marks == VALUES else tensor.marks
    derived = {"axis": tensor.axis or None, "mask_of": tensor.mask_of, "marks": marks, "length_of": tensor.length_of}
    return document | _without_none(derived)


def _field_json(field: InputField) -> Any:
    if field == InputField(field.name, field.dtype):
        return field.name
    document = {"name": field.name, "required": field.required, "default": "nan" if field.allows_nan else field.default}
    document |= {"path": field.path and json_path.format_path(field.path), "from": field.source}
    kind: dict[str, Any] = {"bytes" if field.raw else "array": True} if field.raw or field.array else {}
    kind |= {"max_length": field.max_length} if field.varies else {"length": field.array}
    return _without_none(document | kind)


def _decision_json(decision: Decision | Argmax) -> dict[str, Any]:
    return ({"argmax": True} if isinstance(decision, Argmax) else {}) | _without_none(asdict(decision))


def _without_none(document: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in document.items() if value is not None}
