"""`signature.json`: which event field feeds which tensor, and how outputs are read. The public types and their JSON form."""

import math
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, Self

import msgspec
from pydantic import BeforeValidator, Discriminator, Field, Tag, ValidationError, model_validator

from model_registry.errors import Refused
from model_registry.package import documents, dtypes, shapes
from model_registry.package.documents import Part, Text, each_once, whole
from model_registry.package.dtypes import FLOAT_LIMITS, Scalar, value_fault
from model_registry.package.shapes import MAX_WIDTH, Shape

MAX_BYTES = 1 << 20


class SignatureError(Refused):
    """A signature that says nothing, or two things at once."""


@dataclass(frozen=True, slots=True)
class InputField:
    """One field of the event. Absent and null are the same: an error where `required`, else `default` stands in.

    `dtype` is numpy's name of the tensor's dtype, or "string". `array` is the length of an array field (its default, a scalar,
    stands for every element), None for a scalar field. `shape`: the same elements may also come nested in this shape.
    """

    name: str
    dtype: str
    required: bool = True
    default: Scalar | None = None
    array: int | None = None
    shape: Shape | None = None

    @property
    def allows_nan(self) -> bool:
        """Whether the model knows missing numbers: the default is NaN."""
        return isinstance(self.default, float) and math.isnan(self.default)


@dataclass(frozen=True, slots=True)
class TensorInput:
    """One input tensor of shape (B, *row): its elements are the fields in order, or those of its one array field.

    `shape` None: the row is (width,). A constant has no fields but a `value`: one element that fills the row, or nested tuples
    of the row's shape. `batch` False: the tensor is the row, without a batch dimension.
    """

    tensor: str
    dtype: str
    fields: tuple[InputField, ...]
    shape: Shape | None = None
    value: Any = None
    batch: bool = True

    @property
    def width(self) -> int:
        """The elements of a row."""
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
    """Where a score is read: an output tensor, and a column of it or (index None) the whole row. `name` None: the only one."""

    name: str | None
    tensor: str
    index: int | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """What a scalar score is called at or above the threshold, and below."""

    threshold: float
    at_or_above: str
    below: str


@dataclass(frozen=True, slots=True)
class Signature:
    """A model version's contract with the producers of events and the readers of scores."""

    inputs: tuple[TensorInput, ...]
    outputs: tuple[Output, ...]
    labels: tuple[str, ...] | None = None
    decision: Decision | None = None
    fed: tuple[TensorInput, ...] = field(init=False, repr=False, compare=False)
    fields: tuple[InputField, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """`fed`: the tensors that are no constants. `fields`: every event field once, in the order of the tensors."""
        object.__setattr__(self, "fed", tuple(one for one in self.inputs if one.value is None))
        named = {one.name: one for tensor in self.inputs for one in tensor.fields}
        object.__setattr__(self, "fields", tuple(named.values()))

    @classmethod
    def parse(cls, data: bytes | str) -> "Signature":
        """Read signature.json. Raises SignatureError, naming the place, the value and what may stand there."""
        if len(data) > MAX_BYTES:
            raise SignatureError(f"signature.json has {len(data)} bytes; at most {MAX_BYTES} are read")
        try:
            found = _Document.model_validate(msgspec.json.decode(data))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise SignatureError(f"signature.json is no JSON: {error}") from None
        except ValidationError as error:
            raise SignatureError(
                documents.fault(error, "signature.json"), "model_registry/README.md describes signature.json"
            ) from None
        return cls(
            inputs=tuple(tensor.read() for tensor in found.inputs),
            outputs=tuple(Output(name, one.tensor, one.index) for name, one in found.outputs),
            labels=None if found.labels is None else tuple(found.labels),
            decision=None if found.decision is None else Decision(**found.decision.model_dump()),
        )

    def to_json(self) -> str:
        """The same signature as `parse` reads it."""
        outputs = [_without_none({"name": o.name, "tensor": o.tensor, "index": o.index}) for o in self.outputs]
        document = {
            "inputs": [_tensor_json(tensor) for tensor in self.inputs],
            "output": outputs[0] if self.outputs[0].name is None else outputs,
            "labels": self.labels,
            "decision": self.decision,
        }
        return msgspec.json.encode(document).decode()


def _tensor_json(one: TensorInput) -> dict[str, Any]:
    document: dict[str, Any] = {"tensor": one.tensor, "dtype": one.dtype}
    if one.value is None:
        document["fields"] = [_field_json(field) for field in one.fields]
    document |= _without_none({"shape": one.shape, "value": shapes.each(one.value, lambda v: "nan" if v != v else v)})
    return document | ({} if one.batch else {"batch": False})


def _field_json(one: InputField) -> Any:
    if one == InputField(one.name, one.dtype):
        return one.name
    document = {"name": one.name, "required": one.required, "default": "nan" if one.allows_nan else one.default}
    return _without_none(document | ({"array": True, "length": one.array} if one.array else {}))


def _without_none(document: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in document.items() if value is not None}


def _named(raw: Any) -> Any:
    return {"name": raw} if isinstance(raw, str) else raw


def _threshold(value: Any) -> float:
    if fault := value_fault(value, "float64"):
        raise ValueError(fault)
    return float(value)


ARRAY = 'an array field is written {"name": ..., "array": true, "length": n}'


class _Field(Part):
    name: Text
    required: bool | None = None
    default: Any = None
    array: bool = False
    length: Annotated[int, BeforeValidator(partial(whole, 1, MAX_WIDTH))] | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.length is not None and not self.array:
            raise ValueError(ARRAY)
        return self


class _Tensor(Part):
    tensor: Text
    dtype: Annotated[str, BeforeValidator(dtypes.stated)]
    fields: Annotated[list[Annotated[_Field, BeforeValidator(_named)]], Field(min_length=1)] | None = None
    default: Any = None
    shape: Annotated[list[int], BeforeValidator(shapes.stated)] | None = None
    value: Any = None
    batch: bool = True

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.default is not None and (fault := value_fault(self.default, self.dtype, nan=True)):
            raise ValueError(f"the default: {fault}")
        if self.fields is None or self.value is not None:
            return self._constant()
        each_once((one.name for one in self.fields), "field")
        if len(self.fields) > 1 and any(one.array for one in self.fields):
            raise ValueError("a tensor takes one array field and no other beside it; use a tensor for each")
        self._check_shape(self.fields)
        for one in self.fields:
            if one.default is not None and (fault := value_fault(one.default, self.dtype, nan=True)):
                raise ValueError(f"the default of field {one.name!r}: {fault}")
            if one.required is False and one.default is None and self.default is None:
                example = '"nan"' if self.dtype in FLOAT_LIMITS else '""' if self.dtype == "string" else "0"
                hint = f'write "default": {example}, for instance'
                raise ValueError(f"field {one.name!r} is not required and has no default; {hint}")
        return self

    def _constant(self) -> Self:
        """The tensor, if it is a constant. Raises ValueError."""
        shapes.check_constant(self.value, self._row(), self.dtype)
        if self.fields is not None or self.default is not None:
            raise ValueError("a constant takes no fields and no default: leave them out, or the value")
        return self

    def _check_shape(self, fields: list[_Field]) -> None:
        """Raises ValueError where the fields are not as many elements as the shape."""
        if not self.batch:
            raise ValueError('only a constant is fed without a batch dimension: give it a "value" and no fields')
        array = fields[0] if fields[0].array else None
        if self.shape is not None:
            shapes.check_fields(self.shape, len(fields), array.name if array else None, array.length if array else None)
        elif array and array.length is None:
            raise ValueError(f"field {array.name!r}: {ARRAY}")

    def _row(self) -> list[int]:
        """The shape that is stated, else that of the value."""
        return shapes.of_value(self.value) if self.shape is None else self.shape

    def read(self) -> TensorInput:
        shape = None if self.shape is None else tuple(self.shape)
        if self.fields is None:
            value = shapes.each(self.value, lambda one: dtypes.element(one, self.dtype))
            return TensorInput(self.tensor, self.dtype, (), tuple(self._row()), value, self.batch)
        return TensorInput(self.tensor, self.dtype, tuple(self._field(one) for one in self.fields), shape)

    def _field(self, one: _Field) -> InputField:
        default = dtypes.element(self.default if one.default is None else one.default, self.dtype)
        required = default is None if one.required is None else one.required
        shape = tuple(self.shape) if one.array and self.shape else ()
        length = math.prod(shape) if shape else one.length
        return InputField(one.name, self.dtype, required, default, length, shape if len(shape) > 1 else None)


class _Output(Part):
    tensor: Text
    index: Annotated[int, BeforeValidator(partial(whole, 0, MAX_WIDTH))] | None = None


class _NamedOutput(_Output):
    name: Text


class _Decision(Part):
    threshold: Annotated[float, BeforeValidator(_threshold)]
    at_or_above: Text
    below: Text


class _Document(Part):
    inputs: Annotated[list[_Tensor], Field(min_length=1)]
    output: Annotated[
        Annotated[_Output, Tag("(one)")] | Annotated[list[_NamedOutput], Field(min_length=1), Tag("(several)")],
        Discriminator(lambda raw: "(several)" if isinstance(raw, list) else "(one)"),
    ]
    labels: Annotated[list[Text], Field(min_length=1)] | None = None
    decision: _Decision | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        each_once((one.tensor for one in self.inputs), "inputs: tensor")
        seen: dict[str, InputField] = {}
        for one in (one for tensor in self.inputs for one in tensor.read().fields):
            if seen.setdefault(one.name, one) != one:
                raise ValueError(
                    f"inputs: field {one.name!r} feeds two tensors with another dtype, default, length or shape in each"
                )
        if all(one.fields is None for one in self.inputs):
            raise ValueError("inputs: all are constants; at least one tensor takes a field of the event")
        each_once((name for name, _ in self.outputs if name is not None), "output: name")
        each_once(self.labels or (), "labels: label")
        if self.decision and len(self.outputs) > 1:
            raise ValueError("decision: several named outputs have no one score to decide on; leave decision out")
        if self.decision and self.labels and self.outputs[0][1].index is None:
            hint = 'name the deciding column: "output": {..., "index": n}'
            raise ValueError(f"decision: the score is an array with a label each; {hint}")
        return self

    @property
    def outputs(self) -> list[tuple[str | None, _Output]]:
        return [(one.name, one) for one in self.output] if isinstance(self.output, list) else [(None, self.output)]
