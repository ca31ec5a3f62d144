"""JSON objects to tensors: whole batches through one compiled msgspec decoder, single events where one of them is bad.

Absent and null are the same, unknown fields are ignored, NaN (which Python's json writes) counts as null where the signature
allows a missing number and is refused elsewhere.
"""

import json
import math
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Annotated, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from model_registry.signature import InputField, Signature, TensorInput
from scorer.events.contract import Decoded, Poison, Reason, not_finite_rows

BUILD_ERRORS = (OverflowError, ValueError, TypeError)


class JsonDecoder:
    """Decodes JSON objects for one signature. `id_field` is the event field that holds the id, or None."""

    def __init__(self, signature: Signature, id_field: str | None, max_event_bytes: int) -> None:
        self._fields = {field.name: field for tensor in signature.inputs for field in tensor.fields}
        self._id_field = id_field
        self._max_bytes = max_event_bytes
        names = list(self._fields) + ([id_field] if id_field and id_field not in self._fields else [])
        self._types = {name: _json_type(self._fields.get(name)) for name in names}
        self._struct = msgspec.defstruct(
            "Event",
            [(f"c{i}", type_) if _needed(self._fields.get(name)) else (f"c{i}", type_, None)
             for i, (name, type_) in enumerate(self._types.items())],
            rename={f"c{i}": name for i, name in enumerate(names)},
            kw_only=True,
            gc=False,
        )  # fmt: skip
        self._decode = msgspec.json.Decoder(self._struct).decode
        self._builders = [(tensor.tensor, _builder(tensor, names)) for tensor in signature.inputs]
        self._id_at = names.index(id_field) if id_field else None

    def decode(self, values: Sequence[bytes | None]) -> Decoded:
        """Decode a batch; see `Decoder`."""
        try:
            if max(map(len, values), default=0) > self._max_bytes:  # type: ignore[arg-type]  # None is a TypeError
                return self._decode_singly(values)
            _check_utf8(values)
            decode, as_tuple = self._decode, msgspec.structs.astuple
            rows = [as_tuple(decode(value)) for value in values]  # type: ignore[arg-type]  # no None is left
            tensors = {name: build(rows) for name, build in self._builders}
        except (ValueError, TypeError, OverflowError, RecursionError):
            return self._decode_singly(values)
        ids: Sequence[Any] = [None] * len(rows) if self._id_at is None else list(map(itemgetter(self._id_at), rows))
        decoded = Decoded(list(range(len(rows))), ids, tensors, {})
        return self._without_not_finite(decoded)

    def _decode_singly(self, values: Sequence[bytes | None]) -> Decoded:
        """The batch again, one event at a time: the good ones together, the bad ones with their reasons."""
        kept: list[int] = []
        rows: list[tuple[Any, ...]] = []
        rejected: dict[int, Poison] = {}
        for i, value in enumerate(values):
            try:
                row = msgspec.structs.astuple(self._decode_one(value))
                for _, build in self._builders:
                    _build_one(build, row)
            except Poison as poison:
                rejected[i] = poison
            else:
                kept.append(i)
                rows.append(row)
        ids: Sequence[Any] = [None if self._id_at is None else row[self._id_at] for row in rows]
        tensors = {name: build(rows) for name, build in self._builders}
        return self._without_not_finite(Decoded(kept, ids, tensors, rejected))

    def _decode_one(self, value: bytes | None) -> Any:
        """One event, or the Poison that says what is wrong with it."""
        if value is None:
            raise Poison(Reason.TOMBSTONE, "the value is null")
        if len(value) > self._max_bytes:
            raise Poison(Reason.OVERSIZE, f"{len(value)} bytes; input.max_event_bytes is {self._max_bytes}")
        try:
            value.decode("utf-8")
        except UnicodeDecodeError as error:
            raise Poison(Reason.NOT_UTF8, str(error)) from None
        try:
            return self._decode(value)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return self._decode_leniently(value)

    def _decode_leniently(self, value: bytes) -> Any:
        """What the compiled decoder refused, by the standard library's: NaN where it is allowed, else the reason."""
        try:
            event = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise Poison(Reason.MALFORMED, f"not JSON: {error}") from None
        if not isinstance(event, dict):
            raise Poison(Reason.WRONG_TYPE, f"the event is a JSON {type(event).__name__}, not an object")
        for name, type_ in self._types.items():
            event[name] = _checked(name, self._fields.get(name), type_, event.get(name))
        try:
            return msgspec.convert(event, self._struct)
        except msgspec.ValidationError as error:
            raise Poison(Reason.WRONG_TYPE, str(error)) from None

    def _without_not_finite(self, decoded: Decoded) -> Decoded:
        """Move the rows with an infinity, or NaN where it is not allowed, from the good to the rejected."""
        bad: dict[int, str] = {}
        for name, build in self._builders:
            if build.nan_allowed is not None:
                bad |= {int(row): name for row in not_finite_rows(decoded.tensors[name], build.nan_allowed)}
        if not bad:
            return decoded
        for row, name in bad.items():
            error = f"tensor {name!r} would hold a number that is not finite in its dtype"
            decoded.rejected[decoded.rows[row]] = Poison(Reason.NOT_FINITE, error)
        keep = [row for row in range(len(decoded.rows)) if row not in bad]
        return Decoded(
            [decoded.rows[row] for row in keep],
            [decoded.ids[row] for row in keep],
            {name: tensor[keep] for name, tensor in decoded.tensors.items()},
            decoded.rejected,
        )


class IdField:
    """Reads the configured id field (None: there is none) out of events that may be anything at all."""

    def __init__(self, name: str | None) -> None:
        fields = [("value", str | int | None, None)] if name else []
        rename = {"value": name} if name else {}
        self._decode = msgspec.json.Decoder(msgspec.defstruct("Id", fields, rename=rename)).decode
        self._named = name is not None

    def of(self, value: bytes | None) -> str | int | None:
        """The id, or None where the event has none that can be read."""
        try:
            found: str | int | None = self._decode(value or b"").value if self._named else None  # type: ignore[attr-defined]
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        return found


def _check_utf8(values: Sequence[bytes | None]) -> None:
    """One look at the whole batch: msgspec does not check strings that it skips."""
    text = b"\n".join(values)  # type: ignore[arg-type]
    if not text.isascii():
        text.decode("utf-8")


def _needed(field: InputField | None) -> bool:
    return field is not None and field.required


def _json_type(field: InputField | None) -> Any:
    """The msgspec type of a field; None stands for the id, which is a string or an integer."""
    if field is None:
        return str | int | None
    kind = np.dtype("O" if field.dtype == "string" else field.dtype).kind
    type_: Any = {"O": str, "f": float, "b": bool}.get(kind)
    if type_ is None:
        limits = np.iinfo(field.dtype)
        bounded = np.dtype(field.dtype).itemsize < 8
        type_ = Annotated[int, msgspec.Meta(ge=int(limits.min), le=int(limits.max))] if bounded else int
    if field.array is not None:
        type_ = Annotated[list[type_], msgspec.Meta(min_length=field.array, max_length=field.array)]
    return type_ if field.required else type_ | None


def _checked(name: str, field: InputField | None, type_: Any, value: Any) -> Any:
    """One field of an event, or the Poison that names it."""
    if isinstance(value, float) and not math.isfinite(value):
        if math.isnan(value) and field is not None and field.allows_nan:
            return None
        raise Poison(Reason.NOT_FINITE, f"field {name!r} is {value}")
    if value is None and _needed(field):
        raise Poison(Reason.MISSING_FIELD, f"required field {name!r} is missing or null")
    try:
        msgspec.convert(value, type_)
    except msgspec.ValidationError as error:
        ranged = isinstance(value, int) and field is not None and "int" in field.dtype
        raise Poison(Reason.OUT_OF_RANGE if ranged else Reason.WRONG_TYPE, f"field {name!r}: {error}") from None
    return value


class _Builder:
    """Rows of decoded values to one tensor. `nan_allowed` has a boolean a column, None where the dtype is no float."""

    def __init__(self, tensor: TensorInput, columns: Sequence[int]) -> None:
        self._fields = tensor.fields
        self._columns = columns
        self._dtype = np.dtype(object if tensor.dtype == "string" else tensor.dtype)
        self._array = tensor.fields[0].array is not None
        span = slice(columns[0], columns[-1] + 1)
        contiguous = list(columns) == list(range(span.start, span.stop))
        self._pick: Callable[[Any], Any] = itemgetter(span if contiguous and not self._array else columns[0])
        if not contiguous and len(columns) > 1:
            self._pick = itemgetter(*columns)
        self.nan_allowed: NDArray[np.bool_] | None = None
        self._defaults: list[tuple[int, Any]] = []
        if self._dtype.kind == "f":
            self.nan_allowed = np.array([field.allows_nan for field in tensor.fields])
        if not self._array:
            self._defaults = [
                (i, field.default) for i, field in enumerate(tensor.fields) if not field.required and not field.allows_nan
            ]

    def __call__(self, rows: Sequence[tuple[Any, ...]]) -> NDArray[Any]:
        picked = list(map(self._pick, rows))
        if self._array:
            return self._from_arrays(picked)
        if self._dtype.kind == "f":
            return self._floats(picked)
        if self._defaults:
            picked = [self._filled(row) for row in picked]
        tensor = np.empty((len(picked), len(self._fields)), self._dtype)
        if picked:
            tensor[:] = picked
        return tensor

    def _floats(self, picked: list[Any]) -> NDArray[Any]:
        with np.errstate(over="ignore"):
            tensor = np.array(picked, self._dtype).reshape(len(picked), len(self._fields))  # None becomes NaN
        for column, default in self._defaults:
            values = tensor[:, column]
            values[np.isnan(values)] = default
        return tensor

    def _from_arrays(self, picked: list[Any]) -> NDArray[Any]:
        field = self._fields[0]
        if not field.required:
            picked = [[field.default] * field.array if row is None else row for row in picked]  # type: ignore[operator]
        with np.errstate(over="ignore"):
            return np.array(picked, self._dtype).reshape(len(picked), field.array or 0)

    def _filled(self, row: tuple[Any, ...]) -> list[Any]:
        values = list(row)
        for column, default in self._defaults:
            if values[column] is None:
                values[column] = default
        return values


def _builder(tensor: TensorInput, names: Sequence[str]) -> _Builder:
    return _Builder(tensor, [names.index(field.name) for field in tensor.fields])


def _build_one(build: _Builder, row: tuple[Any, ...]) -> None:
    """Raises Poison where one event's values do not fit the tensor's dtype."""
    try:
        build([row])
    except BUILD_ERRORS as error:
        raise Poison(Reason.OUT_OF_RANGE, str(error)) from None
