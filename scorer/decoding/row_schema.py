"""The fields of a signature as msgspec types. One compiled type reads whole batches; invalid events are checked field by field.

The check of a single event produces the error that names the field. An absent field is the same as null. Unknown fields are
ignored. NaN counts as null if the signature allows missing numbers; otherwise the event is rejected. Every format that parses
its values uses this module after the parser.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from operator import itemgetter
from typing import Any

import msgspec
from numpy.typing import NDArray

from model_registry.package import field_sources, json_path
from model_registry.package.event_tree import Tree, WrongStep, build_tree, look_up
from model_registry.package.signature import InputField, Signature
from scorer.dead_letters.reasons import NotFinite, Poison, Reason
from scorer.decoding import decimals
from scorer.decoding.array_fields import array_type, element_type
from scorer.decoding.integers import is_integral
from scorer.decoding.nested_fields import NestedRows
from scorer.decoding.tensors import BUILD_ERRORS, Row, TensorBuilder
from scorer.decoding.types import BeyondFloat, Decoded, FormatMismatch
from scorer.decoding.unicode_text import check_text
from scorer.native.byte_columns import ByteColumn

as_tuple: Callable[[Any], Row] = msgspec.structs.astuple
SLICE_VALUES = 8_192  # maximum number of values that are decoded before they are packed: a few hundred kB of Python floats
MIN_ROWS = 32
NO_BASE64 = "the text is not base64 (standard alphabet, padded)"


class RowSchema:
    """The msgspec type of the events of one signature, and the conversion of events to rows and of rows to tensors.

    A row has one value for each field. If an id is configured, the id is the last value of the row, unless a field of the
    signature has the same path as the id.

    Attributes:
        names: the names of the values of a row, in the order of the values.
        types: the msgspec type of each value, by name.
        nested: whether a field or the id is read at a path, and not from the top-level field with its name.
        id_name: the name of the id if it is a top-level field of the event, otherwise its path.
        tree: the paths of the fields.
        struct: the msgspec type of an event.
        row: a function that returns the row of an event which msgspec has decoded to `struct`.
    """

    def __init__(self, signature: Signature, id_field: str | None, max_event_bytes: int, *, id_apart: bool = False) -> None:
        """Compile the types.

        Args:
            signature: the model's signature.
            id_field: the path of the event field with the id; None if events have no id.
            max_event_bytes: the maximum size of an event.
            id_apart: whether the caller reads the id itself and appends it to each row. If so, the id is not among the `names`,
                not in the type `struct`, and not in the rows that `checked` returns.

        Raises:
            FormatMismatch: the path of the id conflicts with the path of a field.
        """
        self.signature = signature
        self.tensors = TensorBuilder(signature)
        self._max_bytes = max_event_bytes
        self._slice = max(
            MIN_ROWS, SLICE_VALUES // max(1, sum(1 if field.raw else field.array or 1 for field in signature.fields))
        )
        self.by_name = {field.name: field for field in signature.fields}
        self.names = list(self.by_name)
        self._steps = {field.name: field.steps for field in signature.fields}
        id_steps = json_path.parse_object_path(id_field) if id_field else ()
        self.id_name = str(id_steps[0]) if len(id_steps) == 1 else id_field
        self.nested = any(field.path for field in signature.fields) or (len(id_steps) > 1 and not id_apart)
        self._id_column = -1 if id_field and id_apart else self._find_id_column(id_steps) if id_steps else None
        self.types = {name: json_type(self.by_name.get(name)) for name in self.names}
        self._flat = self.struct = self.struct_of(self.names)
        self.row = as_tuple
        self.tree: Tree = {name: name for name in self.names}
        if self.nested:
            self._nest(id_field)

    def _find_id_column(self, steps: tuple[json_path.Step, ...]) -> int:
        """Return the index of the event id in a row. `steps` is the path of the id in the event.

        If a field of the signature has the same path as the id, the index is that of the field. Otherwise this method appends
        the id to `names`: under the name of its top-level field, or under an empty name if `nested` is true.
        """
        column = next((index for index, other in enumerate(self._steps.values()) if other == steps), None)
        if column is not None:
            return column
        name = "" if self.nested else str(steps[0])
        self.names.append(name)
        self._steps[name] = steps
        return len(self.names) - 1

    def _nest(self, id_field: str | None) -> None:
        try:
            self.tree = build_tree(self._steps.items())
        except ValueError as error:
            raise FormatMismatch(f"input.id {id_field!r} conflicts with the signature: {error}") from None
        rows = NestedRows(self.tree, {name: (self.types[name], *self._absent(name)) for name in self.names})
        self.struct = rows.type
        self.row = rows.row

    def struct_of(self, names: Sequence[str], **options: Any) -> type[msgspec.Struct]:
        """Return a msgspec struct type with the fields `names`. The values of an instance are in this order."""
        columns = [self.names.index(name) for name in names]
        return msgspec.defstruct(
            "Event",
            [(f"c{i}", self.types[name], *self._absent(name)) for i, name in zip(columns, names, strict=True)],
            rename={f"c{i}": name for i, name in zip(columns, names, strict=True)},
            kw_only=True,
            gc=False,
            **options,
        )

    def _absent(self, name: str) -> tuple[Any, ...]:
        """Return the value of a field that an event lacks, in the form that `msgspec.defstruct` takes.

        Returns:
            () if the field is required; (default,) for a scalar field with a float as default; otherwise (None,).
        """
        field = self.by_name.get(name)
        if field is None:
            return (None,)
        if field.required:
            return ()
        return (field.default if field.array is None and isinstance(field.default, float) else None,)

    def decoded(self, rows: Iterable[Row]) -> Decoded:
        """Build the tensors of a batch from rows of valid events.

        Rows are read and packed in slices, so that the Python objects of a slice are still in the CPU's cache when they are
        packed. Raises OverflowError, ValueError or TypeError if a value is not valid for its dtype.
        """
        coming = iter(rows)
        ids: list[Any] = []
        parts: list[dict[str, NDArray[Any]]] = []
        while part := list(islice(coming, self._slice)):
            ids += self._ids(part)
            parts.append(self.tensors.build(part))
        return self.tensors.finished(Decoded(list(range(len(ids))), ids, self.tensors.joined(parts), {}))

    def whole(self, tensors: dict[str, NDArray[Any]], ids: Sequence[Any] | None) -> Decoded:
        """Build the decoded batch from the tensors and the ids of all its events. `ids` is None if the events have no ids.

        Events with NaN or infinities that the signature does not allow are rejected.
        """
        count = len(next(iter(tensors.values())))
        return self.tensors.finished(Decoded(list(range(count)), ids or [None] * count, tensors, {}))

    def _ids(self, rows: Sequence[Row]) -> Sequence[Any]:
        return [None] * len(rows) if self._id_column is None else list(map(itemgetter(self._id_column), rows))

    def decode_singly(self, values: Sequence[bytes | None], read: Callable[[bytes], Row]) -> Decoded:
        """Decode a batch one event at a time, so that each invalid event gets its own reason.

        `read` returns the row of a value, and raises Poison if the value is invalid. Values that are null or too large are
        rejected without a call of `read`.
        """
        return self.decode_each(values, lambda value: read(self.sized(value)))

    def decode_each(self, values: Sequence[Any], read: Callable[[Any], Row]) -> Decoded:
        """Decode values one at a time.

        Unlike in `decode_singly`, `read` is called for every value, even if the value is null or exceeds the size limit.
        """
        accepted: list[int] = []
        rows: list[Row] = []
        rejected: dict[int, Poison] = {}
        for i, value in enumerate(values):
            try:
                row = read(value)
                self.tensors.check(row)
            except Poison as poison:
                rejected[i] = poison.without_traceback()
            else:
                accepted.append(i)
                rows.append(row)
        return self.tensors.finished(Decoded(accepted, self._ids(rows), self.tensors.build(rows), rejected))

    def fits(self, values: Sequence[bytes | None]) -> bool:
        """Return whether no value is null and no value exceeds the size limit."""
        if isinstance(values, ByteColumn):
            return values.nulls is None and values.largest() <= self._max_bytes
        try:
            return max(map(len, values), default=0) <= self._max_bytes  # type: ignore[arg-type]  # None is a TypeError
        except TypeError:
            return False

    def unfit(self, values: Sequence[bytes | None]) -> dict[int, Poison]:
        """Return the error (Poison) for each value that is null or too large, by the index of the event."""
        rejected: dict[int, Poison] = {}
        for row, value in enumerate(() if self.fits(values) else values):
            try:
                self.sized(value)
            except Poison as poison:
                rejected[row] = poison.without_traceback()
        return rejected

    def sized(self, value: bytes | None) -> bytes:
        """Return the value unchanged. Raises Poison if the value is null or too large."""
        if value is None:
            raise Poison(Reason.TOMBSTONE, "the value is null")
        if len(value) > self._max_bytes:
            raise Poison(Reason.OVERSIZE, f"the event has {len(value)} bytes; input.max_event_bytes is {self._max_bytes}")
        return value

    def converted(self, event: Mapping[str, Any]) -> Row:
        """Return the row of one event that the library of a format has parsed. Raises Poison if a value is invalid."""
        try:
            return self.row(msgspec.convert(event, self.struct))
        except (msgspec.ValidationError, ValueError):
            return self.checked(event)

    def checked(self, event: Mapping[str, Any]) -> Row:
        """Check each field of one parsed event, and return the row. Raises Poison, which names the invalid field."""
        values = {name: self._check_value(name, self._look_up_field(event, name)) for name in self.names}
        try:
            return as_tuple(msgspec.convert(values, self._flat))
        except msgspec.ValidationError as error:
            raise Poison(Reason.WRONG_TYPE, str(error)) from None

    def _look_up_field(self, event: Mapping[str, Any], name: str) -> Any:
        try:
            return look_up(event, self._steps[name])
        except WrongStep as error:
            raise Poison(Reason.WRONG_TYPE, f"field {self._display_name(name)}: {error}") from None

    def _display_name(self, name: str) -> str:
        """Return the name of a field, or of the id, for error messages."""
        if name in self.by_name:
            return field_sources.qualified_name(self.by_name[name])
        return repr(name) if name else f"'input.id' ({json_path.format_path(self._steps[name])})"

    def _check_value(self, name: str, value: Any) -> Any:
        """Check and return the value of a field or the id; a decimal becomes a plain number. Raises Poison with the name."""
        field = self.by_name.get(name)
        if _is_numeric(field):
            value = decimals.to_plain_numbers(value, levels=int(field is not None and field.array is not None))
        if isinstance(value, BeyondFloat):
            raise Poison(Reason.OUT_OF_RANGE, f"field {self._display_name(name)}: the number is beyond the range of a float")
        if isinstance(value, float) and not math.isfinite(value):
            if math.isnan(value) and field is not None and field.allows_nan:
                return None
            raise NotFinite(Reason.NOT_FINITE, f"field {self._display_name(name)} is {value}")
        if value is None and field is not None and field.required:
            raise Poison(Reason.MISSING_FIELD, f"required field {self._display_name(name)} is missing or null")
        if field is None and is_integral(value):
            value = int(value)
        try:
            msgspec.convert(value, self.types[name])
        except (msgspec.ValidationError, UnicodeEncodeError) as error:  # msgspec encodes text before it compares the types
            check_text(self._display_name(name), value)
            is_number = isinstance(value, int) and not isinstance(value, bool)
            out_of_range = is_number and field is not None and field.array is None and field.dtype not in ("string", "bool")
            error_text = NO_BASE64 if field is not None and field.raw and isinstance(value, str) else _in_words(error)
            if field is not None and _is_numeric(field):
                error_text += decimals.hint(_first_text(value))
            raise Poison(
                Reason.OUT_OF_RANGE if out_of_range else Reason.WRONG_TYPE, f"field {self._display_name(name)}: {error_text}"
            ) from None
        if field is None or field.dtype == "string":
            check_text(self._display_name(name), value)
        return value


def _is_numeric(field: InputField | None) -> bool:
    """Return whether a field is a number or an array of numbers. None stands for the id, which may be an integer."""
    return field is None or (not field.raw and field.dtype not in ("string", "bool"))


def _first_text(value: Any) -> Any:
    """Return the first text or bytes in a list; None if the list has neither. Return a value that is not a list unchanged."""
    return next((element for element in value if isinstance(element, str | bytes)), None) if isinstance(value, list) else value


def _in_words(error: Exception) -> str:
    return str(error).replace(f"`{BeyondFloat.__name__}`", "a number beyond the range of a float")


def require_no_paths(signature: Signature, format_: str) -> Signature:
    """Return the signature unchanged. Raises FormatMismatch if a field has a path, because the format has no field names."""
    for field in signature.fields:
        if field.path:
            path = f"field {field.name!r} has the path {json_path.format_path(field.path)}"
            raise FormatMismatch(f"input.format {format_} has no field names, but {path}; use json, avro or protobuf")
    return signature


def json_type(field: InputField | None) -> Any:
    """Return the msgspec type of a field. None stands for the id, whose type is a string or an integer."""
    if field is None:
        return str | int | None
    type_: Any = element_type(field.dtype)
    if field.raw:
        type_ = bytes
    elif field.shape is not None:
        type_ = list  # flat or nested: `tensors` checks the elements
    elif field.array is not None:
        type_ = array_type((field.array,), type_)
    return type_ if field.required else type_ | None


FAULTS = (*BUILD_ERRORS, RecursionError)
"""Errors that the decoding of a whole batch raises if an event is invalid. Each event is then decoded separately."""
