"""The fields of a signature as msgspec types: one compiled type for whole batches, and checks of single events for the error.

Absent and null are the same. Unknown fields are ignored. NaN counts as null if the signature allows missing numbers; otherwise
the event is rejected. Every format uses this module after it has parsed an event.
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
from scorer.native.byte_columns import ByteColumn

as_tuple: Callable[[Any], Row] = msgspec.structs.astuple
SLICE_VALUES = 8_192  # values of rows that are decoded before they are packed: a few hundred kB of Python floats
FEWEST_ROWS = 32
NO_BASE64 = "the text is no base64 (standard alphabet, padded)"


class RowSchema:
    """The fields of one signature, as a msgspec type for whole batches and as checks of single events.

    A row holds one value for each field. The id follows at the end, unless no id is configured or a field of the signature has
    the same path.

    Attributes:
        names: the names of the values of a row, in their order.
        types: the msgspec type of each field.
        nested: whether any field is not at the top of the event under its own name.
        id_name: the id's name at the top of the event, or its path.
        tree: the paths of the fields.
        struct: the msgspec type of an event.
        row: converts an event of the type `struct` to a row.
    """

    def __init__(self, signature: Signature, id_field: str | None, max_event_bytes: int, *, id_apart: bool = False) -> None:
        """Compile the types.

        Args:
            signature: the model's signature.
            id_field: the path of the event field that holds the id, or None.
            max_event_bytes: the limit of an event's size.
            id_apart: whether the id is outside of the fields. The caller then appends it to a row, and `names`, `struct` and
                `checked` do not contain it.

        Raises:
            FormatMismatch: the path of the id conflicts with the path of a field.
        """
        self.signature = signature
        self.tensors = TensorBuilder(signature)
        self._max_bytes = max_event_bytes
        self._slice = max(
            FEWEST_ROWS, SLICE_VALUES // max(1, sum(1 if field.raw else field.array or 1 for field in signature.fields))
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
        """Return the index of the id in a row; append the id if no field has its path, without a name if fields are nested."""
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
        """Return a msgspec type with these fields, in the order of astuple()."""
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
        """Return a tuple of the default of an absent field, empty if the field is required, (None,) unless it is a float."""
        field = self.by_name.get(name)
        if field is None:
            return (None,)
        if field.required:
            return ()
        return (field.default if field.array is None and isinstance(field.default, float) else None,)

    def decoded(self, rows: Iterable[Row]) -> Decoded:
        """Build a batch from valid rows, a slice at a time so that a slice stays in the CPU's cache until it is packed.

        Raises OverflowError, ValueError or TypeError if a value does not fit its dtype.
        """
        coming = iter(rows)
        ids: list[Any] = []
        parts: list[dict[str, NDArray[Any]]] = []
        while part := list(islice(coming, self._slice)):
            ids += self._ids(part)
            parts.append(self.tensors.build(part))
        return self.tensors.finished(Decoded(list(range(len(ids))), ids, self.tensors.joined(parts), {}))

    def whole(self, tensors: dict[str, NDArray[Any]], ids: Sequence[Any] | None) -> Decoded:
        """Build a batch of valid events from complete tensors. `ids` is None if the events have no ids."""
        count = len(next(iter(tensors.values())))
        return self.tensors.finished(Decoded(list(range(count)), ids or [None] * count, tensors, {}))

    def _ids(self, rows: Sequence[Row]) -> Sequence[Any]:
        return [None] * len(rows) if self._id_column is None else list(map(itemgetter(self._id_column), rows))

    def decode_singly(self, values: Sequence[bytes | None], read: Callable[[bytes], Row]) -> Decoded:
        """Decode a batch one event at a time, so that each invalid event gets its own reason. `read` raises Poison."""
        return self.decode_each(values, lambda value: read(self.sized(value)))

    def decode_each(self, values: Sequence[Any], read: Callable[[Any], Row]) -> Decoded:
        """Decode values as `decode_singly` does, without a check of their size."""
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
        """Return whether all events are present and within the size limit."""
        if isinstance(values, ByteColumn):
            return values.nulls is None and values.largest() <= self._max_bytes
        try:
            return max(map(len, values), default=0) <= self._max_bytes  # type: ignore[arg-type]  # None is a TypeError
        except TypeError:
            return False

    def unfit(self, values: Sequence[bytes | None]) -> dict[int, Poison]:
        """Return the Poison of each event that is absent or too large, by index."""
        rejected: dict[int, Poison] = {}
        for row, value in enumerate(() if self.fits(values) else values):
            try:
                self.sized(value)
            except Poison as poison:
                rejected[row] = poison.without_traceback()
        return rejected

    def sized(self, value: bytes | None) -> bytes:
        """Return the value. Raises Poison if it is absent or too large."""
        if value is None:
            raise Poison(Reason.TOMBSTONE, "the value is null")
        if len(value) > self._max_bytes:
            raise Poison(Reason.OVERSIZE, f"{len(value)} bytes; input.max_event_bytes is {self._max_bytes}")
        return value

    def converted(self, event: Mapping[str, Any]) -> Row:
        """Convert one event that a format's library has parsed to a row. Raises Poison."""
        try:
            return self.row(msgspec.convert(event, self.struct))
        except (msgspec.ValidationError, ValueError):
            return self.checked(event)

    def checked(self, event: Mapping[str, Any]) -> Row:
        """Convert one event to a row and check each field. Raises Poison, which names the field."""
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
        """Return the name of a field for errors."""
        if name in self.by_name:
            return field_sources.qualified_name(self.by_name[name])
        return repr(name) if name else f"'input.id' ({json_path.format_path(self._steps[name])})"

    def _check_value(self, name: str, value: Any) -> Any:
        """Check one value of an event and return it. Raises Poison, which names the field."""
        field = self.by_name.get(name)
        if _is_numeric(field):
            value = decimals.to_plain_numbers(value, levels=int(field is not None and field.array is not None))
        if isinstance(value, BeyondFloat):
            raise Poison(Reason.OUT_OF_RANGE, f"field {self._display_name(name)}: the number is beyond all floats")
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
        except msgspec.ValidationError as error:
            is_number = isinstance(value, int) and not isinstance(value, bool)
            out_of_range = is_number and field is not None and field.array is None and field.dtype not in ("string", "bool")
            error_text = NO_BASE64 if field is not None and field.raw and isinstance(value, str) else _in_words(error)
            if field is not None and _is_numeric(field):
                error_text += decimals.hint(_first_of_no_number(value))
            raise Poison(
                Reason.OUT_OF_RANGE if out_of_range else Reason.WRONG_TYPE, f"field {self._display_name(name)}: {error_text}"
            ) from None
        if (field is None or field.dtype == "string") and not _is_text(value):
            raise Poison(Reason.MALFORMED, f"field {self._display_name(name)}: half of a surrogate pair is not valid text")
        return value


def _is_numeric(field: InputField | None) -> bool:
    """Return whether a field holds a number or an array of numbers; the id (None) may be an integer."""
    return field is None or (not field.raw and field.dtype not in ("string", "bool"))


def _first_of_no_number(value: Any) -> Any:
    """Return the first text or bytes in a list, or None; any other value is returned unchanged."""
    return next((element for element in value if isinstance(element, str | bytes)), None) if isinstance(value, list) else value


def _in_words(error: msgspec.ValidationError) -> str:
    return str(error).replace(f"`{BeyondFloat.__name__}`", "a number beyond all floats")


def _is_text(value: Any) -> bool:
    """Return whether all text in a value can be encoded as UTF-8."""
    waiting = [value]  # no recursion: arrays may be 1,000 levels deep
    while waiting:
        element = waiting.pop()
        if isinstance(element, list):
            waiting.extend(element)
        elif isinstance(element, str):
            try:
                element.encode()
            except UnicodeEncodeError:
                return False
    return True


def require_no_paths(signature: Signature, format_: str) -> Signature:
    """Return the signature. Raises FormatMismatch if a field has a path, because the format has no field names."""
    for field in signature.fields:
        if field.path:
            path = f"field {field.name!r} has the path {json_path.format_path(field.path)}"
            raise FormatMismatch(f"input.format {format_} has no field names, but {path}; use json, avro or protobuf")
    return signature


def json_type(field: InputField | None) -> Any:
    """Return the msgspec type of a field, or of the id (a string or an integer) for None."""
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
"""Errors that the decoding of a whole batch may raise for an invalid event; each event is then decoded singly."""
