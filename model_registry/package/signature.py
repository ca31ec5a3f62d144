"""`signature.json`: which event field feeds which tensor, and how outputs are read. The public types and their JSON form."""

import math
from dataclasses import asdict, dataclass, field
from typing import Any

import msgspec

from model_registry.errors import Refused
from model_registry.package import json_path, shapes
from model_registry.package.dtypes import Scalar
from model_registry.package.shapes import Shape

VALUES, PADDING = "values", "padding"  # what a mask marks by 1 or true


class SignatureError(Refused):
    """A signature that says nothing, or two things at once."""


@dataclass(frozen=True, slots=True)
class InputField:
    """One field of the event. Absent and null are the same: an error where `required`, else `default` stands in.

    `dtype` is numpy's name of the tensor's dtype, or "string". `array` is the length of an array field (its default, a scalar,
    stands for every element), None for a scalar field. `shape`: the same elements may also come nested in this shape. Where it
    has a length that varies (-1), `array` is the most elements, and what is absent is empty. `path` leads to the value where
    it is not at the top under the name. `source`: the value is not in the event's, but where field_sources.py says. `raw`: the
    elements come as bytes, see binary_fields.py.
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
        """Where the event has the value."""
        return self.path or (self.name,)

    @property
    def varies(self) -> bool:
        """Whether it is an array, or bytes, whose length varies."""
        return shapes.varies(self.shape)

    @property
    def max_length(self) -> int:
        """The largest length where it varies."""
        return (self.array or 0) // shapes.step_size(self.shape or ())

    @property
    def allows_nan(self) -> bool:
        """Whether the model knows missing numbers: the default is NaN."""
        return isinstance(self.default, float) and math.isnan(self.default)


@dataclass(frozen=True, slots=True)
class TensorInput:
    """One input tensor of shape (B, *row): its elements are the fields in order, or those of its one array field.

    `shape` None: the row is (width,). A constant has no fields but a `value`: one element that fills the row, or nested tuples
    of the row's shape. `batch` False: the tensor is the row, without a batch dimension; of one event, where it is no constant.

    A shape with -1 has a length of each event's own. Tensors with the same `axis` share it. `pad` fills rows that are shorter
    than others of their batch; None: rows of one length only are run together. `mask_of` and `length_of` name such a tensor:
    this one, without fields, says where that has values and no padding, or how long it is. `marks`: whether the mask is 1
    (true) at values or at padding.
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
        """Whether events give it rows of a length that varies."""
        return bool(self.fields) and shapes.varies(self.shape)

    @property
    def width(self) -> int:
        """The elements of a row, the most of them where its length varies."""
        return math.prod(self.shape or ()) if self.value is not None else self.fields[0].array or len(self.fields)

    @property
    def row(self) -> Shape:
        """The shape of what one event gives."""
        return (self.width,) if self.shape is None else self.shape

    @property
    def given(self) -> tuple[int | None, ...]:
        """The shape of the tensor; None is the batch."""
        return (None, *self.row) if self.batch else self.row


@dataclass(frozen=True, slots=True)
class Output:
    """Where a score is read: an output tensor, and a column of it or (index None) the whole row. `name` None: the only one.

    `shape` is what follows the batch, -1 an open length; without it a row of one is a number. `top`: so many of a row, the
    largest first, each with its label. `labels` name the columns where they are not the signature's.
    """

    name: str | None
    tensor: str
    index: int | None = None
    shape: Shape | None = None
    top: int | None = None
    labels: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """What a scalar score is called at or above the threshold, and below. `output` is its name, where there are several."""

    threshold: float
    at_or_above: str
    below: str
    output: str | None = None


@dataclass(frozen=True, slots=True)
class Argmax:
    """A row is called by the label of its largest number; `below`, where that is below the threshold. `output` as above."""

    threshold: float | None = None
    below: str | None = None
    output: str | None = None


@dataclass(frozen=True, slots=True)
class Signature:
    """A model version's contract with the producers of events and the readers of scores.

    `batch_tolerance`: by how much a number of a score may depend on the events that share its batch, see batch_probe.py; None:
    by rounding alone.
    """

    inputs: tuple[TensorInput, ...]
    outputs: tuple[Output, ...]
    labels: tuple[str, ...] | None = None
    decision: Decision | Argmax | None = None
    batch_tolerance: float | None = None
    fed: tuple[TensorInput, ...] = field(init=False, repr=False, compare=False)
    fields: tuple[InputField, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """`fed`: the tensors with fields. `fields`: every event field once, in the order of the tensors."""
        object.__setattr__(self, "fed", tuple(one for one in self.inputs if one.fields))
        named = {one.name: one for tensor in self.inputs for one in tensor.fields}
        object.__setattr__(self, "fields", tuple(named.values()))

    @property
    def decided(self) -> Output:
        """The output that a decision is made on."""
        name = self.decision.output if self.decision else None
        return next((one for one in self.outputs if one.name == name), self.outputs[0])

    def labels_of(self, output: Output) -> tuple[str, ...]:
        """The names of an output's columns; nothing where it has none."""
        return output.labels or self.labels or ()

    def rank(self, output: Output) -> int | None:
        """The dimensions of an output behind the batch, where that is said."""
        if output.index is not None or output.top or (isinstance(self.decision, Argmax) and output is self.decided):
            return 1
        return None if output.shape is None else len(output.shape)

    @property
    def labelled(self) -> bool:
        """Whether rows are called by the label of their largest without a rule that says so: labels beside one output, or
        beside several of which none has a `top` that they may belong to."""
        alone = len(self.outputs) == 1 or not any(one.top for one in self.outputs)
        return self.labels is not None and self.decision is None and alone

    @property
    def varies(self) -> bool:
        """Whether a tensor has a length that varies."""
        return any(one.varies for one in self.fed)

    @property
    def alone(self) -> bool:
        """Whether the model takes one event at a time: a tensor without a batch dimension is no constant."""
        return any(one.value is None and not one.batch for one in self.inputs)

    def to_json(self) -> str:
        """Return the signature as JSON that `parse_signature` reads back."""
        outputs = [_without_none(asdict(one)) for one in self.outputs]
        document: dict[str, Any] = {
            "inputs": [_tensor_json(tensor) for tensor in self.inputs],
            "output": outputs[0] if self.outputs[0].name is None else outputs,
            "labels": self.labels,
            "decision": None if self.decision is None else _decision_json(self.decision),
        }
        document |= {} if self.batch_tolerance is None else {"batch_tolerance": self.batch_tolerance}
        return msgspec.json.encode(document).decode()


def _tensor_json(one: TensorInput) -> dict[str, Any]:
    document: dict[str, Any] = {"tensor": one.tensor, "dtype": one.dtype}
    if one.fields:
        document["fields"] = [_field_json(field) for field in one.fields]
    document |= _without_none({"shape": one.shape, "value": shapes.map_elements(one.value, lambda v: "nan" if v != v else v)})
    document |= {} if one.batch else {"batch": False}
    document |= {} if one.pad is None else {"pad": shapes.map_elements(one.pad, lambda v: "nan" if v != v else v)}
    marks = None if one.marks == VALUES else one.marks
    made = {"axis": one.axis or None, "mask_of": one.mask_of, "marks": marks, "length_of": one.length_of}
    return document | _without_none(made)


def _field_json(one: InputField) -> Any:
    if one == InputField(one.name, one.dtype):
        return one.name
    document = {"name": one.name, "required": one.required, "default": "nan" if one.allows_nan else one.default}
    document |= {"path": one.path and json_path.format_path(one.path), "from": one.source}
    kind: dict[str, Any] = {"bytes" if one.raw else "array": True} if one.raw or one.array else {}
    kind |= {"max_length": one.max_length} if one.varies else {"length": one.array}
    return _without_none(document | kind)


def _decision_json(one: Decision | Argmax) -> dict[str, Any]:
    return ({"argmax": True} if isinstance(one, Argmax) else {}) | _without_none(asdict(one))


def _without_none(document: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in document.items() if value is not None}
