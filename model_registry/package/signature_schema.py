"""The schema of `signature.json`: its keys, their consistency rules, and the error messages.

`parse_signature` is the only function that converts a document to a `Signature`.
"""

import math
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Discriminator, Field, Tag, ValidationError, model_validator

from model_registry.package import (
    binary_fields,
    document_validation,
    dtypes,
    dynamic_shapes,
    event_tree,
    field_sources,
    json_path,
    shapes,
)
from model_registry.package.document_validation import DocumentPart, Text, check_unique, check_whole_number, suggestion
from model_registry.package.dtypes import FLOAT_LIMITS, value_fault
from model_registry.package.shapes import MAX_RANK, MAX_WIDTH, VARIES
from model_registry.package.signature import (
    VALUES,
    Argmax,
    Decision,
    InputField,
    Output,
    Signature,
    SignatureError,
    TensorInput,
)
from model_registry.untrusted_input import json_documents as json_documents

MAX_BYTES = 1 << 20
MAX_CLASSES = 1_000  # of an event's score; a whole row holds more


def _named(raw: Any) -> Any:
    return {"name": raw} if isinstance(raw, str) else raw


ARRAY = 'an array field is written {"name": ..., "array": true, "length": n}'


def _path(text: Any) -> Any:
    if not isinstance(text, str):
        raise ValueError(f"{text!r:.100} is not a valid path such as after.amount or items[0].price")  # noqa: TRY004
    return json_path.parse_object_path(text)


def _tolerance(value: Any) -> Any:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if value is not None and not (number and 0 < value < math.inf):
        raise ValueError(f"{value!r:.100} is not a number above 0; write the largest difference of a score between two batches")
    return None if value is None else float(value)


class _Field(DocumentPart):
    name: Text
    path: Annotated[tuple[json_path.Step, ...], BeforeValidator(_path)] | None = None
    required: bool | None = None
    default: Any = None
    source: Annotated[str | None, BeforeValidator(field_sources.check_source)] = Field(default=None, alias="from")
    array: bool = False
    bytes: bool = False
    length: Annotated[int, BeforeValidator(partial(check_whole_number, 1, MAX_WIDTH))] | None = None
    max_length: Annotated[int, BeforeValidator(partial(check_whole_number, 1, binary_fields.MAX_BYTES))] | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.array and self.bytes:
            raise ValueError(f'field {self.name!r} comes as bytes or as an array; remove "array" or "bytes"')
        if self.length is not None and not self.array and not self.bytes:
            raise ValueError(ARRAY)
        return self


class _Tensor(DocumentPart):
    tensor: Text
    dtype: Annotated[str, BeforeValidator(dtypes.check_dtype)]
    fields: Annotated[list[Annotated[_Field, BeforeValidator(_named)]], Field(min_length=1)] | None = None
    default: Any = None
    shape: Annotated[list[int], BeforeValidator(shapes.check_shape)] | None = None
    value: Any = None
    batch: bool = True
    pad: Any = None
    axis: Text | None = None
    mask_of: Text | None = None
    length_of: Text | None = None
    marks: Literal["values", "padding"] | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if dynamic_shapes.check_dynamic(self):
            return self
        if self.default is not None and (fault := value_fault(self.default, self.dtype, nan=True)):
            raise ValueError(f"the default of the tensor: {fault}")
        if self.fields is None or self.value is not None:
            return self._constant()
        check_unique((field.name for field in self.fields), "field")
        if len(self.fields) > 1 and any(field.array or field.bytes for field in self.fields):
            kind = "array field" if any(field.array for field in self.fields) else "field of bytes"
            raise ValueError(f"a tensor takes one {kind} and no other field; use one tensor for each field")
        self._check_shape(self.fields)
        for field in self.fields:
            field_sources.check_field(field.name, field.source, self.dtype, path=field.path, array=field.array, raw=field.bytes)
            if field.default is not None and (fault := value_fault(field.default, self.dtype, nan=True)):
                raise ValueError(f"the default of field {field.name!r}: {fault}")
            if field.required is False and field.default is None and self.default is None:
                example = '"nan"' if self.dtype in FLOAT_LIMITS else '""' if self.dtype == "string" else "0"
                hint = f'write "default": {example}, for instance'
                raise ValueError(f"field {field.name!r} is not required and has no default; {hint}")
        return self

    def _constant(self) -> Self:
        """Return this tensor if it is a valid constant. Raises ValueError otherwise."""
        shapes.check_constant(self.value, self._row(), self.dtype)
        if self.fields is not None or self.default is not None:
            raise ValueError("a constant (value) must not have fields or a default: remove these keys, or the value")
        return self

    def _check_shape(self, fields: list[_Field]) -> None:
        """Raise ValueError unless the fields have as many elements in total as the tensor's shape."""
        array = fields[0] if fields[0].array else None
        if fields[0].bytes and binary_fields.count_elements(fields[0].name, self.dtype, self.shape, fields[0].length):
            return
        if self.shape is not None:
            shapes.check_fields(self.shape, len(fields), array.name if array else None, array.length if array else None)
        elif array and array.length is None:
            raise ValueError(f"field {array.name!r}: {ARRAY}")

    def _row(self) -> list[int]:
        """Return the shape of a constant: the shape in the document, or the shape of the value if the document states none."""
        return shapes.shape_of_value(self.value) if self.shape is None else self.shape

    def read(self) -> TensorInput:
        shape = None if self.shape is None else tuple(self.shape)
        if self.mask_of or self.length_of:
            derived_shape = (shapes.VARIES,) if self.mask_of else ()
            shape = derived_shape if shape is None else shape
            mask = self.mask_of
            length = self.length_of
            marks = self.marks or VALUES
            return TensorInput(
                self.tensor, self.dtype, (), shape, batch=self.batch, mask_of=mask, length_of=length, marks=marks
            )
        if self.fields is None:
            value = shapes.map_elements(self.value, lambda element: dtypes.parse_element(element, self.dtype))
            return TensorInput(self.tensor, self.dtype, (), tuple(self._row()), value, self.batch)
        fields = tuple(self._field(field) for field in self.fields)
        pad = dtypes.parse_element(self.pad, self.dtype)
        return TensorInput(self.tensor, self.dtype, fields, shape, None, self.batch, pad, self.axis or "")

    def _field(self, field: _Field) -> InputField:
        default = dtypes.parse_element(self.default if field.default is None else field.default, self.dtype)
        required = default is None if field.required is None else field.required
        path = None if field.path == (field.name,) and not field.source else field.path
        shape = tuple(self.shape) if self.shape and (field.array or shapes.varies(self.shape)) else ()
        length = shapes.step_size(shape) * (field.max_length or 1) if shape else field.length
        if field.bytes and not shape:
            length = binary_fields.count_elements(field.name, self.dtype, self.shape, field.length)
        nested_shape = shape if len(shape) > 1 or shapes.varies(shape) else None
        return InputField(field.name, self.dtype, required, default, length, nested_shape, path, field.source, field.bytes)


_Labels = Annotated[list[Text], Field(min_length=1)]


def _threshold(value: Any) -> float:
    if fault := value_fault(value, "float64"):
        raise ValueError(fault)
    return float(value)


def _output_shape(raw: Any) -> Any:
    if raw is None:
        return None
    if not isinstance(raw, list) or len(raw) > MAX_RANK:
        raise ValueError(
            f"{raw!r:.100} is not a list of at most {MAX_RANK} lengths, the dimensions that follow the batch; -1 is any length"
        )
    for size in raw:
        if size is None or (size != -1 and check_whole_number(1, MAX_WIDTH, size) is None):
            raise ValueError("a dimension in the shape is null; write its size, or -1 for any length")
    if (count := math.prod(map(abs, raw))) > MAX_WIDTH:
        raise ValueError(f"the shape {raw} has {count} elements; a score may have at most {MAX_WIDTH}")
    return raw


class _Output(DocumentPart):
    tensor: Text
    index: Annotated[int, BeforeValidator(partial(check_whole_number, 0, MAX_WIDTH))] | None = None
    shape: Annotated[list[int], BeforeValidator(_output_shape)] | None = None
    top: Annotated[int, BeforeValidator(partial(check_whole_number, 1, MAX_CLASSES))] | None = None
    labels: _Labels | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        stated = [key for key in ("index", "shape", "top") if getattr(self, key) is not None]
        if len(stated) > 1:
            raise ValueError(f"{' and '.join(stated)} read the tensor in two ways; remove one of these keys")
        check_unique(self.labels or (), "labels: label")
        return self

    def read(self) -> Output:
        shape = None if self.shape is None else tuple(self.shape)
        labels = None if self.labels is None else tuple(self.labels)
        return Output(getattr(self, "name", None), self.tensor, self.index, shape, self.top, labels)


class _NamedOutput(_Output):
    name: Text


class _Decision(DocumentPart):
    threshold: Annotated[float, BeforeValidator(_threshold)]
    at_or_above: Text
    below: Text
    output: Text | None = None

    def read(self) -> Decision:
        return Decision(**self.model_dump())


def _true(value: Any) -> bool:
    if value is not True:
        raise ValueError(f'{value!r:.100} is not valid; write "argmax": true, or remove the decision')
    return True


class _Argmax(DocumentPart):
    argmax: Annotated[bool, BeforeValidator(_true)]
    threshold: Annotated[float, BeforeValidator(_threshold)] | None = None
    below: Text | None = None
    output: Text | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.threshold is None) is not (self.below is None):
            example = '"threshold": 0.5, "below": "unsure"'
            hint = f"write both, such as {example}, or neither"
            raise ValueError(f'"threshold" requires "below", the label for numbers below the threshold, and vice versa: {hint}')
        return self

    def read(self) -> Argmax:
        return Argmax(self.threshold, self.below, self.output)


_StatedOutput = Annotated[
    Annotated[_Output, Tag("(one)")] | Annotated[list[_NamedOutput], Field(min_length=1), Tag("(several)")],
    Discriminator(lambda raw: "(several)" if isinstance(raw, list) else "(one)"),
]
_StatedDecision = Annotated[
    Annotated[_Decision, Tag("(threshold)")] | Annotated[_Argmax, Tag("(argmax)")],
    Discriminator(lambda raw: "(argmax)" if isinstance(raw, dict) and "argmax" in raw else "(threshold)"),
]


def _check_outputs(outputs: Sequence[Output], labels: Sequence[str], rule: _Decision | _Argmax | None) -> None:
    """Raise ValueError if the outputs, the signature's labels and `rule`, the decision, contradict each other."""
    check_unique((output.name for output in outputs if output.name is not None), "output: name")
    check_unique(labels, "labels: label")
    decided = _decided(outputs, rule) if rule else None
    for output in outputs:
        place = "output" if output.name is None else f"output {output.name!r}"
        own_labels = output.labels or labels
        if output.top and not own_labels:
            raise ValueError(
                f'{place}: "top" requires labels, which name the classes; write "labels": ["cat", "dog", ...], one a column'
            )
        if output.top and output.top > len(own_labels):
            raise ValueError(f"{place}: top is {output.top}, but there are only {len(own_labels)} labels")
        if output.labels and not output.top and not (output is decided and isinstance(rule, _Argmax)):
            hint = 'remove "labels", or write "top" or a decision by argmax'
            raise ValueError(f'{place}: "labels" has no effect without "top" and without a decision by argmax; {hint}')
    if decided:
        _check_rule(decided, decided.labels or labels, rule, alone=len(outputs) == 1)


def _decided(outputs: Sequence[Output], rule: _Decision | _Argmax) -> Output:
    """Return the output to which the decision applies. Raises ValueError if this output is unclear or unknown."""
    names = [output.name for output in outputs if output.name is not None]
    if rule.output is None:
        if len(outputs) > 1:
            hint = f'name the output that decides: "output": "{names[0]}"'
            raise ValueError(f"decision: the signature has several outputs, and the decision must name one; {hint}")
        return outputs[0]
    if rule.output not in names:
        advice = suggestion(rule.output, names) if names else "the only output has no name: remove decision.output"
        raise ValueError(f"decision.output: {rule.output!r:.100} is not an output; {advice}")
    return outputs[names.index(rule.output)]


def _check_rule(decided: Output, labels: Sequence[str], rule: _Decision | _Argmax | None, *, alone: bool) -> None:
    """Raise ValueError if the decision does not fit the output to which it applies.

    `alone` states whether the signature has only this output.
    """
    if isinstance(rule, _Argmax):
        if decided.index is not None or decided.shape is not None:
            raise ValueError('decision: argmax selects the largest number of a row; remove "index" and "shape" from its output')
        if not labels:
            raise ValueError('decision: argmax requires labels; write "labels": ["cat", "dog", ...], one a column')
    elif VARIES in (decided.shape or ()):
        raise ValueError(
            f"decision: the score is an array of any length, shape {list(decided.shape or ())}; threshold requires a number"
        )
    elif decided.top or (alone and labels and decided.index is None):
        hint = 'name the deciding column, "output": {..., "index": n}, or write "decision": {"argmax": true}'
        raise ValueError(f"decision: the score is an array with one label per number, not a single number; {hint}")


class _Document(DocumentPart):
    inputs: Annotated[list[_Tensor], Field(min_length=1)]
    output: _StatedOutput
    labels: _Labels | None = None
    decision: _StatedDecision | None = None
    batch_tolerance: Annotated[float | None, BeforeValidator(_tolerance)] = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        check_unique((tensor.tensor for tensor in self.inputs), "inputs: tensor")
        fields: dict[str, InputField] = {}
        for field in (field for tensor in self.inputs for field in tensor.read().fields):
            if fields.setdefault(field.name, field) != field:
                aspects = "dtype, default, path, origin, length or shape"
                raise ValueError(
                    f"inputs: field {field.name!r} feeds two tensors, which state a different {aspects} for it; write it "
                    "in the same way in both"
                )
        if all(tensor.fields is None for tensor in self.inputs):
            raise ValueError("inputs: all tensors are constants; at least one tensor must take a field of the event")
        try:
            event_tree.build_tree((field.name, field.steps) for field in fields.values())
            _check_columns(fields.values())
            dynamic_shapes.check_together([tensor.read() for tensor in self.inputs])
        except ValueError as error:
            raise ValueError(f"inputs: {error}") from None
        _check_outputs(self.outputs, self.labels or (), self.decision)
        return self

    @property
    def outputs(self) -> tuple[Output, ...]:
        return tuple(output.read() for output in (self.output if isinstance(self.output, list) else [self.output]))


def _check_columns(fields: Iterable[InputField]) -> None:
    """Raise ValueError if no row of a table can have all the columns that the joined fields read."""
    columns: dict[str, list[tuple[str, Sequence[json_path.Step]]]] = {}
    for field in fields:
        if table := field_sources.table_of(field):
            columns.setdefault(table, []).append((field.name, field_sources.column_steps(field)))
    for table, paths in columns.items():
        try:
            event_tree.build_tree(paths)
        except ValueError as error:
            raise ValueError(f"table {table}: {error}") from None


def parse_signature(data: bytes | str) -> Signature:
    """Parse the content of a signature.json.

    Raises:
        SignatureError: The content is too large, no JSON, or no valid signature. The message names the position, the value
            and the remedy.
    """
    if len(data) > MAX_BYTES:
        raise SignatureError(f"signature.json has {len(data)} bytes; the limit is {MAX_BYTES} bytes")
    try:
        document = _Document.model_validate(json_documents.ANY.decode(data))
    except json_documents.UnreadableDocument as error:
        raise SignatureError(f"signature.json is not JSON: {error}") from None
    except ValidationError as error:
        raise SignatureError(
            document_validation.format_error(error, "signature.json"),
            "model_registry/docs/signature.md describes signature.json",
        ) from None
    return Signature(
        inputs=tuple(tensor.read() for tensor in document.inputs),
        outputs=document.outputs,
        labels=None if document.labels is None else tuple(document.labels),
        decision=None if document.decision is None else document.decision.read(),
        batch_tolerance=document.batch_tolerance,
    )
