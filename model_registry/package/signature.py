"""`signature.json`: which event field feeds which tensor, and how outputs are read. The public types and their JSON form."""

import math
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, Self

import msgspec
from pydantic import BeforeValidator, Discriminator, Field, Tag, ValidationError, model_validator

from model_registry.errors import Refused
from model_registry.package import documents, event_tree, paths
from model_registry.package.documents import Part, Text, each_once, nearest, whole

MAX_BYTES = 1 << 20
MAX_WIDTH = 1 << 20  # elements of one event's row of a tensor
FLOAT_LIMITS = {"float16": 65504.0, "float32": 3.4028234663852886e38, "float64": 1.7976931348623157e308}  # IEEE 754 maxima
INTEGER_LIMITS = {f"{kind}{bits}": integer for bits in (8, 16, 32, 64) for kind, integer in (
    ("int", (-(1 << bits - 1), (1 << bits - 1) - 1)), ("uint", (0, (1 << bits) - 1)))}  # fmt: skip
DTYPES = (*FLOAT_LIMITS, *INTEGER_LIMITS, "bool", "string")


Scalar = str | bool | int | float


class SignatureError(Refused):
    """A signature that says nothing, or two things at once."""


@dataclass(frozen=True, slots=True)
class InputField:
    """One field of the event. Absent and null are the same: an error where `required`, else `default` stands in.

    `dtype` is numpy's name of the tensor's dtype, or "string". `array` is the length of an array field (its default, a scalar,
    stands for every element), None for a scalar field. `path` leads to the value where it is not at the top under the name.
    """

    name: str
    dtype: str
    required: bool = True
    default: Scalar | None = None
    array: int | None = None
    path: tuple[paths.Step, ...] | None = None

    @property
    def steps(self) -> tuple[paths.Step, ...]:
        """Where the event has the value."""
        return self.path or (self.name,)

    @property
    def allows_nan(self) -> bool:
        """Whether the model knows missing numbers: the default is NaN."""
        return isinstance(self.default, float) and math.isnan(self.default)


@dataclass(frozen=True, slots=True)
class TensorInput:
    """One input tensor of shape (B, width), its columns the fields in order, or the elements of its one array field."""

    tensor: str
    dtype: str
    fields: tuple[InputField, ...]

    @property
    def width(self) -> int:
        """The second dimension."""
        return self.fields[0].array or len(self.fields)


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
    fields: tuple[InputField, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """`fields`: every event field once, in the order of the tensors."""
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
            "inputs": [
                {"tensor": t.tensor, "dtype": t.dtype, "fields": [_field_json(f) for f in t.fields]} for t in self.inputs
            ],
            "output": outputs[0] if self.outputs[0].name is None else outputs,
            "labels": self.labels,
            "decision": self.decision,
        }
        return msgspec.json.encode(document).decode()


def _field_json(one: InputField) -> Any:
    if one == InputField(one.name, one.dtype):
        return one.name
    document = {"name": one.name, "required": one.required, "default": "nan" if one.allows_nan else one.default}
    document |= {"path": one.path and paths.written(one.path)}
    return _without_none(document | ({"array": True, "length": one.array} if one.array else {}))


def _without_none(document: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in document.items() if value is not None}


def value_fault(value: object, dtype: str, *, nan: bool = False) -> str | None:
    """Why a JSON value is none of a dtype, or None if it is. `nan` allows the word "nan" for a float."""
    if dtype in INTEGER_LIMITS:
        low, high = INTEGER_LIMITS[dtype]
        good = isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
        return None if good else f"{value!r} is no {dtype} ({low} to {high})"
    if dtype == "bool":
        return None if isinstance(value, bool) else f"{value!r} is no bool (true or false)"
    if dtype == "string":
        return None if isinstance(value, str) else f"{value!r} is no string"
    if nan and value == "nan":
        return None
    number = isinstance(value, int | float) and not isinstance(value, bool)
    good = number and abs(value) <= FLOAT_LIMITS[dtype]  # type: ignore[arg-type]  # NaN compares false
    return None if good else f"{value!r} is no finite {dtype}" + (' (NaN is written "nan")' if nan else "")


def _named(raw: Any) -> Any:
    return {"name": raw} if isinstance(raw, str) else raw


def _dtype(value: Any) -> Any:
    if value not in DTYPES:
        raise ValueError(f"{value!r:.100} is no dtype; {nearest(str(value), DTYPES)}")
    return value


def _threshold(value: Any) -> float:
    if fault := value_fault(value, "float64"):
        raise ValueError(fault)
    return float(value)


def _path(text: Any) -> Any:
    if not isinstance(text, str):
        raise ValueError(f"{text!r:.100} is no path such as after.amount or items[0].price")  # noqa: TRY004
    return paths.of_object(text)


class _Field(Part):
    name: Text
    path: Annotated[tuple[paths.Step, ...], BeforeValidator(_path)] | None = None
    required: bool | None = None
    default: Any = None
    array: bool = False
    length: Annotated[int, BeforeValidator(partial(whole, 1, MAX_WIDTH))] | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.array != (self.length is not None):
            raise ValueError('an array field is written {"name": ..., "array": true, "length": n}')
        return self


class _Tensor(Part):
    tensor: Text
    dtype: Annotated[str, BeforeValidator(_dtype)]
    fields: Annotated[list[Annotated[_Field, BeforeValidator(_named)]], Field(min_length=1)]
    default: Any = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.default is not None and (fault := value_fault(self.default, self.dtype, nan=True)):
            raise ValueError(f"the default: {fault}")
        each_once((one.name for one in self.fields), "field")
        if len(self.fields) > 1 and any(one.array for one in self.fields):
            raise ValueError("a tensor takes one array field and no other beside it; use a tensor for each")
        for one in self.fields:
            if one.default is not None and (fault := value_fault(one.default, self.dtype, nan=True)):
                raise ValueError(f"the default of field {one.name!r}: {fault}")
            if one.required is False and one.default is None and self.default is None:
                example = '"nan"' if self.dtype in FLOAT_LIMITS else '""' if self.dtype == "string" else "0"
                hint = f'write "default": {example}, for instance'
                raise ValueError(f"field {one.name!r} is not required and has no default; {hint}")
        return self

    def read(self) -> TensorInput:
        return TensorInput(self.tensor, self.dtype, tuple(self._field(one) for one in self.fields))

    def _field(self, one: _Field) -> InputField:
        default = self.default if one.default is None else one.default
        if self.dtype in FLOAT_LIMITS and default is not None:
            default = math.nan if default == "nan" else float(default)
        required = default is None if one.required is None else one.required
        path = None if one.path == (one.name,) else one.path
        return InputField(one.name, self.dtype, required, default, one.length, path)


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
                what = "dtype, default, path or length"
                raise ValueError(f"inputs: field {one.name!r} feeds two tensors with another {what} in each")
        try:
            event_tree.tree((one.name, one.steps) for one in seen.values())
        except ValueError as error:
            raise ValueError(f"inputs: {error}") from None
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
