"""`signature.json`: which event field feeds which tensor, and how the outputs are read. The public types and their JSON form.

The rules of what may stand in the file, and the errors, are in `signature_file.py`.
"""

import math
from dataclasses import dataclass, field
from typing import Any

import msgspec

from model_registry.package import signature_file
from model_registry.package.signature_file import FLOAT_LIMITS, SignatureError

__all__ = ["Decision", "InputField", "Output", "Signature", "SignatureError", "TensorInput"]

Scalar = str | bool | int | float


@dataclass(frozen=True, slots=True)
class InputField:
    """One field of the event. Absent and null are the same: an error where `required`, else `default` stands in.

    `dtype` is numpy's name of the tensor's dtype, or "string". `array` is the length of an array field (its default, a scalar,
    stands for every element), None for a scalar field.
    """

    name: str
    dtype: str
    required: bool = True
    default: Scalar | None = None
    array: int | None = None

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
        raw = signature_file.check(data)
        outputs = raw["output"] if isinstance(raw["output"], list) else [raw["output"]]
        labels, decision = raw.get("labels"), raw.get("decision")
        return cls(
            inputs=tuple(_tensor(tensor) for tensor in raw["inputs"]),
            outputs=tuple(Output(o.get("name"), o["tensor"], o.get("index")) for o in outputs),
            labels=None if labels is None else tuple(labels),
            decision=None if decision is None else Decision(**decision | {"threshold": float(decision["threshold"])}),
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


def _tensor(raw: dict[str, Any]) -> TensorInput:
    fallback = raw.get("default")
    fields = (_field({"name": f} if isinstance(f, str) else f, raw["dtype"], fallback) for f in raw["fields"])
    return TensorInput(raw["tensor"], raw["dtype"], tuple(fields))


def _field(raw: dict[str, Any], dtype: str, fallback: Scalar | None) -> InputField:
    default = raw["default"] if raw.get("default") is not None else fallback
    if dtype in FLOAT_LIMITS and default is not None:
        default = math.nan if default == "nan" else float(default)
    required = raw.get("required", default is None)
    return InputField(raw["name"], dtype, required, default, raw["length"] if raw.get("array") else None)


def _field_json(one: InputField) -> Any:
    if one == InputField(one.name, one.dtype):
        return one.name
    document = {"name": one.name, "required": one.required, "default": "nan" if one.allows_nan else one.default}
    return _without_none(document | ({"array": True, "length": one.array} if one.array else {}))


def _without_none(document: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in document.items() if value is not None}
