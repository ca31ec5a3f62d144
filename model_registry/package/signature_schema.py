"""What `signature.json` may say, and what is wrong with one that says something else."""

import math
from functools import partial
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from model_registry.package import (
    binary_fields,
    dtypes,
    dynamic_shapes,
    event_tree,
    field_sources,
    json_path,
    output_schema,
    shapes,
)
from model_registry.package.dtypes import FLOAT_LIMITS, value_fault
from model_registry.package.shapes import MAX_WIDTH
from model_registry.package.signature import VALUES, InputField, Output, TensorInput
from model_registry.package.validation import Part, Text, each_once, whole


def _named(raw: Any) -> Any:
    return {"name": raw} if isinstance(raw, str) else raw


ARRAY = 'an array field is written {"name": ..., "array": true, "length": n}'


def _path(text: Any) -> Any:
    if not isinstance(text, str):
        raise ValueError(f"{text!r:.100} is no path such as after.amount or items[0].price")  # noqa: TRY004
    return json_path.of_object(text)


def _tolerance(value: Any) -> Any:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if value is not None and not (number and 0 < value < math.inf):
        raise ValueError(f"{value!r:.100} is no number above 0, by which a score may depend on its batch")
    return None if value is None else float(value)


class _Field(Part):
    name: Text
    path: Annotated[tuple[json_path.Step, ...], BeforeValidator(_path)] | None = None
    required: bool | None = None
    default: Any = None
    source: Annotated[str | None, BeforeValidator(field_sources.stated)] = Field(default=None, alias="from")
    array: bool = False
    bytes: bool = False
    length: Annotated[int, BeforeValidator(partial(whole, 1, MAX_WIDTH))] | None = None
    max_length: Annotated[int, BeforeValidator(partial(whole, 1, binary_fields.MOST_BYTES))] | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.array and self.bytes:
            raise ValueError(f'field {self.name!r} comes as bytes or as an array; leave "array" or "bytes" out')
        if self.length is not None and not self.array and not self.bytes:
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
    pad: Any = None
    axis: Text | None = None
    mask_of: Text | None = None
    length_of: Text | None = None
    marks: Literal["values", "padding"] | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if dynamic_shapes.is_stated(self):
            return self
        if self.default is not None and (fault := value_fault(self.default, self.dtype, nan=True)):
            raise ValueError(f"the default: {fault}")
        if self.fields is None or self.value is not None:
            return self._constant()
        each_once((one.name for one in self.fields), "field")
        if len(self.fields) > 1 and any(one.array or one.bytes for one in self.fields):
            what = "array field" if any(one.array for one in self.fields) else "field of bytes"
            raise ValueError(f"a tensor takes one {what} and no other beside it; use a tensor for each")
        self._check_shape(self.fields)
        for one in self.fields:
            field_sources.check(one.name, one.source, self.dtype, path=one.path, array=one.array, raw=one.bytes)
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
        array = fields[0] if fields[0].array else None
        if fields[0].bytes and binary_fields.elements(fields[0].name, self.dtype, self.shape, fields[0].length):
            return
        if self.shape is not None:
            shapes.check_fields(self.shape, len(fields), array.name if array else None, array.length if array else None)
        elif array and array.length is None:
            raise ValueError(f"field {array.name!r}: {ARRAY}")

    def _row(self) -> list[int]:
        """The shape that is stated, else that of the value."""
        return shapes.of_value(self.value) if self.shape is None else self.shape

    def read(self) -> TensorInput:
        shape = None if self.shape is None else tuple(self.shape)
        if self.mask_of or self.length_of:
            made = (shapes.VARIES,) if self.mask_of else ()
            shape, mask, length = made if shape is None else shape, self.mask_of, self.length_of
            marks = self.marks or VALUES
            return TensorInput(
                self.tensor, self.dtype, (), shape, batch=self.batch, mask_of=mask, length_of=length, marks=marks
            )
        if self.fields is None:
            value = shapes.each(self.value, lambda one: dtypes.element(one, self.dtype))
            return TensorInput(self.tensor, self.dtype, (), tuple(self._row()), value, self.batch)
        fields, pad = tuple(self._field(one) for one in self.fields), dtypes.element(self.pad, self.dtype)
        return TensorInput(self.tensor, self.dtype, fields, shape, None, self.batch, pad, self.axis or "")

    def _field(self, one: _Field) -> InputField:
        default = dtypes.element(self.default if one.default is None else one.default, self.dtype)
        required = default is None if one.required is None else one.required
        path = None if one.path == (one.name,) else one.path
        shape = tuple(self.shape) if self.shape and (one.array or shapes.varies(self.shape)) else ()
        length = shapes.step(shape) * (one.max_length or 1) if shape else one.length
        if one.bytes and not shape:
            length = binary_fields.elements(one.name, self.dtype, self.shape, one.length)
        kept = shape if len(shape) > 1 or shapes.varies(shape) else None
        return InputField(one.name, self.dtype, required, default, length, kept, path, one.source, one.bytes)


class Document(Part):
    inputs: Annotated[list[_Tensor], Field(min_length=1)]
    output: output_schema.Stated
    labels: output_schema.Labels | None = None
    decision: output_schema.Rule | None = None
    batch_tolerance: Annotated[float | None, BeforeValidator(_tolerance)] = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        each_once((one.tensor for one in self.inputs), "inputs: tensor")
        seen: dict[str, InputField] = {}
        for one in (one for tensor in self.inputs for one in tensor.read().fields):
            if seen.setdefault(one.name, one) != one:
                what = "dtype, default, path, origin, length or shape"
                raise ValueError(f"inputs: field {one.name!r} feeds two tensors with another {what} in each")
        if all(one.fields is None for one in self.inputs):
            raise ValueError("inputs: all are constants; at least one tensor takes a field of the event")
        try:
            event_tree.tree((one.name, one.steps) for one in seen.values())
            dynamic_shapes.check_together([one.read() for one in self.inputs])
        except ValueError as error:
            raise ValueError(f"inputs: {error}") from None
        output_schema.check(self.outputs, self.labels or (), self.decision)
        return self

    @property
    def outputs(self) -> tuple[Output, ...]:
        return tuple(one.read() for one in (self.output if isinstance(self.output, list) else [self.output]))
