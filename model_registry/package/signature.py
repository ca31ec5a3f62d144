"""The types of a model version's signature: which event fields feed which input tensors, and which outputs form the score.

`Signature.to_json` writes signature.json; `signature_schema.py` parses and checks it.
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
"""VALUES and PADDING are the values of `TensorInput.marks`: a mask is 1 (true) at values, or at padding."""


class SignatureError(Refused):
    """A signature.json that is malformed, incomplete or contradictory."""


@dataclass(frozen=True, slots=True)
class InputField:
    """A field of the event that a model reads.

    Attributes:
        name: The field's name, unique in a signature.
        dtype: Numpy's name of the dtype of the tensor that the field feeds, or "string".
        required: Whether an event without the value, or with null, is invalid. If not, the model reads `default` instead; in a
            field of varying length, it reads an empty array.
        default: The value that the model reads if the field is absent or null. In an array, each element has this value.
        array: The number of elements of an array field; the largest number if its length varies; None for a scalar.
        shape: The shape of an array whose elements may be nested, with -1 for a length that varies. A flat array is valid too.
            None if only a flat array is valid.
        path: The path of the value in the event; None if the value is at the top level under the field's name. If the value is
            in a table, the path of the value in a row of the table, see `field_sources.column_steps`.
        source: The place of the value if it is not in the event: a part of the record, such as its key, or a table; see
            field_sources.py. None for the event.
        raw: Whether the value is a byte string that holds the elements, see binary_fields.py.
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
        """The path of the value in the event; the field's name if `path` is None, or if the value is not in the event."""
        return self.path if self.path and not self.source else (self.name,)

    @property
    def varies(self) -> bool:
        """Whether the field is an array, or bytes, of varying length."""
        return shapes.varies(self.shape)

    @property
    def max_length(self) -> int:
        """The largest length of a field of varying length, in steps of its varying axis."""
        return (self.array or 0) // shapes.step_size(self.shape or ())

    @property
    def allows_nan(self) -> bool:
        """Whether NaN is a valid value. It is valid if the default is NaN, because the model then reads NaN as missing."""
        return isinstance(self.default, float) and math.isnan(self.default)


@dataclass(frozen=True, slots=True)
class TensorInput:
    """An input tensor of the model, of shape (B, *row).

    There are four kinds of tensors:
    - A tensor fed by fields of events. The elements of an event's row are the values of its scalar fields in order, or the
      elements of its only array field. In a tensor of varying length, the length of the row varies from event to event.
    - A constant has the same row for every event.
    - A mask belongs to a tensor of varying length. It marks which elements of that tensor are values and which are padding.
    - A tensor of lengths belongs to a tensor of varying length. It holds the length of each row without the padding.

    Attributes:
        tensor: The name of the model's input.
        dtype: Numpy's name of the tensor's dtype, or "string".
        fields: The fields that feed the tensor; empty for a constant, a mask or a tensor of lengths.
        shape: The shape of a row, with -1 for a length that varies from event to event; None stands for `(width,)`, one
            axis of the size `width`.
        value: The value of a constant: one element that fills the row, or nested tuples of the row's shape; None for other
            tensors.
        batch: Whether the tensor has a batch dimension. A model takes one event at a time if one of its tensors has no batch
            dimension and is no constant.
        pad: The value with which shorter rows are padded; None allows only rows of equal lengths in one run.
        axis: The name of the varying length: tensors with the same axis have equal lengths in each event.
        mask_of: For a mask, the name of the tensor whose padding it marks; None for other tensors.
        length_of: For a tensor of lengths, the name of the tensor whose lengths it holds; None for other tensors.
        marks: For a mask, where it is 1 (true): VALUES or PADDING.
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
        """Whether fields of events feed the tensor with rows of varying length; False for a mask."""
        return bool(self.fields) and shapes.varies(self.shape)

    @property
    def width(self) -> int:
        """The number of elements in a row; the largest number if the length varies."""
        return math.prod(self.shape or ()) if self.value is not None else self.fields[0].array or len(self.fields)

    @property
    def row(self) -> Shape:
        """The shape of the tensor for one event, without the batch dimension; from the fields if `shape` is None."""
        return (self.width,) if self.shape is None else self.shape

    @property
    def full_shape(self) -> tuple[int | None, ...]:
        """The shape of the tensor. None stands for the batch dimension, if the tensor has one."""
        return (None, *self.row) if self.batch else self.row


@dataclass(frozen=True, slots=True)
class Output:
    """A part of the score, read from one output tensor of the model.

    Attributes:
        name: The key of the part in the score; None if the score has only this part.
        tensor: The name of the model's output tensor.
        index: The column of the tensor that is read; None reads the whole row.
        shape: The dimensions of the tensor after the batch, with -1 for any length. If the shape is None, it is not stated, and
            a row of one element is read as a number.
        top: The number of a row's largest elements to read, in descending order, each with its label; None reads all elements.
        labels: The names of the tensor's columns if they differ from the signature's labels; else None.
    """

    name: str | None
    tensor: str
    index: int | None = None
    shape: Shape | None = None
    top: int | None = None
    labels: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision by threshold: the label for a score of at least `threshold`, and the label for a lower score.

    `output` is the name of the output that is compared; None if the signature has only one output.
    """

    threshold: float
    at_or_above: str
    below: str
    output: str | None = None


@dataclass(frozen=True, slots=True)
class Argmax:
    """A decision by the largest number of a row: the label of its column, or `below` if the number is below `threshold`.

    `output` is the name of the output with the row; None if the signature has only one output.
    """

    threshold: float | None = None
    below: str | None = None
    output: str | None = None


@dataclass(frozen=True, slots=True)
class Signature:
    """A model version's contract with the producers of events and the readers of scores.

    Attributes:
        inputs: The model's input tensors.
        outputs: The outputs of the score.
        labels: The names of the columns of outputs without labels of their own; None if there are none.
        decision: The rule by which a score gets its label; None if there is none.
        batch_tolerance: The largest allowed difference between an event's scores in two batches, see batch_probe.py; None
            allows only differences by rounding.
        fed: The input tensors with fields.
        fields: All event fields in the order of the tensors; a field that feeds several tensors is listed once.
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
        """The output to which the decision applies; the first output if there is no decision."""
        name = self.decision.output if self.decision else None
        return next((output for output in self.outputs if output.name == name), self.outputs[0])

    def labels_of(self, output: Output) -> tuple[str, ...]:
        """Return the names of an output's columns; empty if the columns have no names."""
        return output.labels or self.labels or ()

    def rank(self, output: Output) -> int | None:
        """Return the number of dimensions of an output's tensor after the batch; None if the signature does not state it."""
        if output.index is not None or output.top or (isinstance(self.decision, Argmax) and output is self.decided):
            return 1
        return None if output.shape is None else len(output.shape)

    @property
    def labelled(self) -> bool:
        """Whether each event gets the label of its row's largest element, although the signature has no decision.

        This is true if the signature has labels and no decision. The exception is a signature with several outputs of which at
        least one has `top`: the labels may be meant only for the classes of that output.
        """
        alone = len(self.outputs) == 1 or not any(output.top for output in self.outputs)
        return self.labels is not None and self.decision is None and alone

    @property
    def varies(self) -> bool:
        """Whether at least one input tensor has a varying length."""
        return any(tensor.varies for tensor in self.fed)

    @property
    def alone(self) -> bool:
        """Whether the model takes one event at a time, because an input tensor other than a constant has no batch dimension."""
        return any(tensor.value is None and not tensor.batch for tensor in self.inputs)

    def to_json(self) -> str:
        """Return the signature as the text of a signature.json; `parse_signature` returns an equal signature for it."""
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
