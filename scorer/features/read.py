"""Reading of feature records. A record contains the inputs of a score, exactly as the model received them.

A record is decoded from JSON or Avro to a `FeatureRecord`. `FeatureDecoder` converts records to the tensors of a signature,
which equal those of the scorer bit for bit; every NaN of a JSON record has the bits of `numpy.nan`. This module never replaces
a missing input by a default, and it reads no topic.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from io import BytesIO
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from model_registry.package.dtypes import FLOAT_LIMITS, array_dtype, value_fault
from model_registry.package.model_inputs import ragged
from model_registry.package.shapes import step_size, with_length
from model_registry.package.signature import InputField, Signature, TensorInput
from model_registry.untrusted_input.json_documents import DocumentDecoder, Int64, UnreadableDocument
from publisher.kafka.source_position import LARGEST_OFFSET, LARGEST_PARTITION
from scorer.dead_letters.reasons import Poison, Reason
from scorer.decoding.record_metadata import RecordMetadata
from scorer.decoding.types import Decoded
from scorer.features.float_text import as_floats, nearest_float

LATEST_MS = 1 << 60
MAGIC = 0
HEADER_BYTES = 5  # Confluent's header: MAGIC, then the schema's id, big-endian
FIELD = "field"
"""The property of a field in the Avro schema that holds the input's name, because a name in Avro has only [A-Za-z0-9_]."""
UINT64_DIGITS = 20
SHOWN = 200  # characters of a value in an error message
READ_FAULTS = (EOFError, ValueError, TypeError, IndexError, KeyError, OverflowError, MemoryError)
_NEGATIVE_ZERO = re.compile(rb"-0(?![0-9.eE])")


class UnreadableFeatures(ValueError):
    """The bytes are not a feature record. The message contains the reason."""


class FeatureSource(msgspec.Struct, frozen=True, gc=False):
    """The position of the scored event in its input topic."""

    topic: str
    partition: Int64
    offset: Int64


class FeatureRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One record of the feature log.

    Attributes:
        id: The id of the event, as in its score record.
        source: The position of the event.
        event_ms: The time of the event in Unix ms.
        scored_ms: The time of scoring in Unix ms.
        model: The repository of the model.
        version: The tag of the version that scored the event.
        digest: The digest of that version.
        role: The role of that version: champion or canary.
        revision: The revision of the channel.
        inputs: The inputs of the model by field name. An array is a flat list, and NaN may be None.
        text: The JSON text of `inputs`; empty if the record is not in JSON.
    """

    id: str
    source: FeatureSource
    event_ms: int
    scored_ms: int
    version: str
    digest: str
    inputs: Mapping[str, Any]
    model: str = ""
    role: str = "champion"
    revision: int = 0
    text: bytes = b""

    @property
    def position(self) -> tuple[str, int, int]:
        """The topic, partition and offset of the event."""
        return self.source.topic, self.source.partition, self.source.offset

    def exact_input(self, name: str) -> Any:
        """Return an input in which each number is its JSON text. If the record is not in JSON, return the input unchanged."""
        # Not as Decimal: the exponent of a number in another input can be too small for it.
        if not self.text:
            return self.inputs[name]
        return json.loads(self.text, parse_float=str, parse_int=str)[name]


ReadFeatures = Callable[[bytes | None], FeatureRecord]
"""Decodes the value of a record of the feature log. Raises UnreadableFeatures; for Avro also DependencyUnavailable."""


class _JsonRecord(msgspec.Struct, frozen=True):
    id: str
    source: FeatureSource
    event_ms: Int64
    scored_ms: Int64
    version: str
    digest: str
    inputs: dict[str, Any]
    model: str = ""
    role: str = "champion"
    revision: Int64 = 0


class _JsonInputs(msgspec.Struct, frozen=True):
    inputs: msgspec.Raw


_json_record = DocumentDecoder(_JsonRecord)
_json_inputs = msgspec.json.Decoder(_JsonInputs)


def decode_json(value: bytes | None) -> FeatureRecord:
    """Decode a feature record in JSON. Raises UnreadableFeatures."""
    try:
        record = _json_record.decode(value)
    except UnreadableDocument as error:
        raise UnreadableFeatures(f"not a feature record in JSON: {error}") from None
    text = bytes(_json_inputs.decode(value or b"").inputs)
    inputs: Mapping[str, Any] = record.inputs
    if _NEGATIVE_ZERO.search(text):  # msgspec decodes -0 as the integer 0
        inputs = json.loads(text, parse_int=lambda digits: -0.0 if digits == "-0" else int(digits))
    return _checked(FeatureRecord(**(msgspec.structs.asdict(record) | {"inputs": inputs, "text": text})))


class AvroFeatureReader:
    """Decoder of feature records in Avro, whose values begin with Confluent's header.

    Args:
        schema: A function that returns the text of the schema with a given id. It is called once for each id. It raises
            UnreadableFeatures if the schema does not exist, and DependencyUnavailable if the schema registry is unavailable.
    """

    def __init__(self, schema: Callable[[int], str]) -> None:
        self._schema = cache(lambda number: _AvroSchema(schema(number)))

    def __call__(self, value: bytes | None) -> FeatureRecord:
        """Decode a feature record. Raises UnreadableFeatures, DependencyUnavailable."""
        if value is None or len(value) < HEADER_BYTES or value[0] != MAGIC:
            raise UnreadableFeatures("not a feature record in Avro: the value does not begin with the id of a schema")
        return self._schema(int.from_bytes(value[1:HEADER_BYTES], "big")).decode(value, HEADER_BYTES)


class _AvroSchema:
    """Decoder of the records of one Avro schema. Raises UnreadableFeatures if the schema is invalid."""

    def __init__(self, text: str) -> None:
        from fastavro import parse_schema
        from fastavro.schema import SchemaParseException

        try:
            document = json.loads(text)
            self._schema = parse_schema(document)
            inputs = next(field["type"] for field in document["fields"] if field["name"] == "inputs")
            self._names = {field["name"]: field.get(FIELD, field["name"]) for field in inputs["fields"]}
        except (ValueError, TypeError, KeyError, StopIteration, RecursionError, SchemaParseException) as error:
            raise UnreadableFeatures(f"not the Avro schema of feature records: {error!r:.{SHOWN}}") from None

    def decode(self, value: bytes, start: int) -> FeatureRecord:
        from fastavro import schemaless_reader

        stream = BytesIO(value)
        stream.seek(start)
        try:
            document: Any = schemaless_reader(stream, self._schema, None)
        except READ_FAULTS as error:
            raise UnreadableFeatures(f"not a feature record in Avro: {error!r:.{SHOWN}}") from None
        if unread := len(value) - stream.tell():
            raise UnreadableFeatures(f"not a feature record in Avro: {unread} bytes follow the record")
        inputs = {self._names[name]: _plain(number) for name, number in document["inputs"].items()}
        members = {name: document[name] for name in FeatureRecord.__struct_fields__ if name in document}
        try:
            return _checked(msgspec.convert(members | {"inputs": inputs}, FeatureRecord))
        except msgspec.ValidationError as error:
            raise UnreadableFeatures(f"not a feature record in Avro: {error!s:.{SHOWN}}") from None


def _plain(value: Any) -> Any:
    """Convert the integers of Avro's logical type decimal (uint64) to int. Return other values unchanged."""
    if isinstance(value, Decimal):
        return int(value)
    if isinstance(value, list) and value and isinstance(value[0], Decimal):
        return list(map(int, value))
    return value


def _checked(record: FeatureRecord) -> FeatureRecord:
    """Return the record unchanged. Raises UnreadableFeatures if its position or one of its times is impossible."""
    source = record.source
    if not (0 <= source.partition <= LARGEST_PARTITION and 0 <= source.offset <= LARGEST_OFFSET):
        raise UnreadableFeatures(
            f"not a feature record: {source.topic}[{source.partition}]@{source.offset} is not a valid position"
        )
    if not (0 <= record.event_ms <= LATEST_MS and 0 <= record.scored_ms <= LATEST_MS):
        raise UnreadableFeatures("not a feature record: a time is not in Unix ms")
    return record


class FeatureDecoder:
    """Converter of feature records to the tensors of one signature.

    A record of another model version is also converted if it has all fields of the signature. The tensors then contain the
    values that the other version received. Missing values are never replaced by the defaults of the signature.
    """

    def __init__(self, signature: Signature) -> None:
        self._fields = signature.fields
        self._tensors = [_TensorReader(tensor) for tensor in signature.fed]

    def convert(self, records: Sequence[FeatureRecord]) -> Decoded:
        """Return the tensors of the records. A record that does not fit the signature is added to `rejected` of the result."""
        rejected = {row: poison for row, record in enumerate(records) if (poison := self._missing(record)) is not None}
        rows = [row for row in range(len(records)) if row not in rejected]
        try:
            tensors = self._build([records[row] for row in rows])
        except _Unfit:
            rejected |= {row: poison for row in rows if (poison := self._fault(records[row])) is not None}
            rows = [row for row in rows if row not in rejected]
            tensors = self._build([records[row] for row in rows])
        return Decoded(rows, [records[row].id for row in rows], tensors, rejected)

    def _build(self, records: Sequence[FeatureRecord]) -> dict[str, NDArray[Any]]:
        return {reader.name: reader.read(records) for reader in self._tensors}

    def _missing(self, record: FeatureRecord) -> Poison | None:
        missing = [repr(field.name) for field in self._fields if field.name not in record.inputs]
        if not missing:
            return None
        return Poison(Reason.MISSING_FIELD, f"the feature record of {record.version} has no input {', '.join(missing)}")

    def _fault(self, record: FeatureRecord) -> Poison | None:
        faults = (_find_fault(record.inputs[field.name], field) for field in self._fields)
        return next((Poison(Reason.WRONG_TYPE, f"feature record: {fault}") for fault in faults if fault), None)


class FeatureLogDecoder:
    """A `Decoder` that decodes records of the feature log instead of events, so that a model scores the logged inputs.

    A value that is not a feature record is rejected as malformed.
    """

    def __init__(self, signature: Signature, read: ReadFeatures) -> None:
        self._features = FeatureDecoder(signature)
        self._read = read

    def decode(self, values: Sequence[bytes | None], _parts: RecordMetadata | None = None, /) -> Decoded:
        """Decode a batch of feature records; see `Decoder.decode`. `_parts` (keys, headers and timestamps) is not used."""
        records: list[FeatureRecord] = []
        rows: list[int] = []
        rejected: dict[int, Poison] = {}
        for row, value in enumerate(values):
            try:
                records.append(self._read(value))
                rows.append(row)
            except UnreadableFeatures as error:
                rejected[row] = Poison(Reason.MALFORMED, str(error))
        part = self._features.convert(records)
        rejected |= {rows[index]: poison for index, poison in part.rejected.items()}
        return Decoded([rows[index] for index in part.rows], part.ids, part.tensors, rejected)


class _Unfit(Exception):
    """A record of the batch does not fit the signature."""


@dataclass(frozen=True, slots=True)
class _TensorReader:
    """Builder of one tensor from records that hold all of its fields."""

    tensor: TensorInput

    @property
    def name(self) -> str:
        return self.tensor.tensor

    def read(self, records: Sequence[FeatureRecord]) -> NDArray[Any]:
        """Return the tensor (B, n), or an object array (B,) of arrays if the length varies. Raises _Unfit."""
        tensor = self.tensor
        first = tensor.fields[0]
        if tensor.varies:
            return ragged((self._varying_row(record, first) for record in records), len(records))
        if first.array is not None:
            arrays = [_column(record, first) for record in records]
            if any(len(array) != first.array for array in arrays):
                raise _Unfit
            return np.stack(arrays) if arrays else np.empty((0, first.array), array_dtype(tensor.dtype))
        columns = [_scalars(records, field) for field in tensor.fields]
        return np.ascontiguousarray(np.stack(columns, axis=1))

    def _varying_row(self, record: FeatureRecord, field: InputField) -> NDArray[Any]:
        elements = _column(record, field)
        shape = field.shape or ()
        length, rest = divmod(len(elements), step_size(shape))
        if rest or length > field.max_length:
            raise _Unfit
        return elements.reshape(with_length(shape, length))


def _column(record: FeatureRecord, field: InputField) -> NDArray[Any]:
    """Return the elements of an array field as a flat array. Raises _Unfit."""
    value = record.inputs[field.name]
    if not isinstance(value, list):
        raise _Unfit
    exact_elements = cache(lambda: record.exact_input(field.name))
    return _converted(value, field, lambda at: exact_elements()[at])


def _scalars(records: Sequence[FeatureRecord], field: InputField) -> NDArray[Any]:
    """Return the values of a scalar field, (B,). A list of one element is replaced by its element. Raises _Unfit."""
    values = [record.inputs[field.name] for record in records]
    if list in set(map(type, values)):
        values = [value[0] if type(value) is list and len(value) == 1 else value for value in values]

    def exact(at: int) -> Any:
        value = records[at].exact_input(field.name)
        return value[0] if isinstance(value, list) else value

    return _converted(values, field, exact)


def _converted(values: list[Any], field: InputField, exact: Callable[[int], Any]) -> NDArray[Any]:
    """Convert values to an array of the field's dtype, (n,).

    Args:
        values: The values as they were decoded.
        field: The field of the values.
        exact: A function that returns the value at an index, in which a number is its exact text.

    Raises:
        _Unfit: A value does not fit the dtype.
    """
    dtype = np.dtype(array_dtype(field.dtype))
    if dtype.kind != "f":
        if field.dtype == "uint64":
            values = [_as_integer(value) for value in values]
        if any(value_fault(value, field.dtype) for value in values):
            raise _Unfit
        array = np.empty(len(values), dtype)
        array[:] = values
        return array
    if not set(map(type, values)) <= {int, float, type(None)}:
        raise _Unfit
    numbers, ties = as_floats(values, dtype)
    for at in ties:
        numbers[at] = nearest_float(exact(at), dtype)
    valid = np.isfinite(numbers)
    if not valid.all() and not (field.allows_nan and (valid | np.isnan(numbers)).all()):
        raise _Unfit
    return numbers


def _as_integer(value: Any) -> Any:
    """Convert a uint64 that is written as decimal digits to int. Return other values unchanged."""
    return int(value) if isinstance(value, str) and len(value) <= UINT64_DIGITS and value.isdecimal() else value


def _find_fault(value: Any, field: InputField) -> str | None:
    """Return the reason why a logged value does not fit a field; None if it fits."""
    what = f"field {field.name!r}"
    if field.array is not None:
        if not isinstance(value, list):
            return f"{what}: an array was expected, not {value!r:.{SHOWN}}"
        if field.varies:
            length, rest = divmod(len(value), step_size(field.shape or ()))
            if rest or length > field.max_length:
                return f"{what}: {len(value)} elements do not fit the shape {list(field.shape or ())}"
        elif len(value) != field.array:
            return f"{what}: an array of {field.array} was expected, not of {len(value)}"
    elif isinstance(value, list) and len(value) != 1:
        return f"{what}: one value was expected, not an array of {len(value)}"
    elements = value if isinstance(value, list) else [value]
    faults = (_element_fault(element, field) for element in elements)
    return next((f"{what}: {fault:.{SHOWN}}" for fault in faults if fault), None)


def _element_fault(value: Any, field: InputField) -> str | None:
    if field.dtype in FLOAT_LIMITS:
        if value is None or value != value:
            return None if field.allows_nan else "the value is NaN, and the field has no default NaN"
        if type(value) not in (int, float):
            return f"{value!r} is not a {field.dtype}"
        with np.errstate(over="ignore"):
            is_finite = abs(value) < 1 << 1024 and np.isfinite(np.dtype(field.dtype).type(value))
        return None if is_finite else f"{value!r} is not a finite {field.dtype}"
    return value_fault(_as_integer(value) if field.dtype == "uint64" else value, field.dtype)
