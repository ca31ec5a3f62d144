"""Encoding of the model inputs of a batch for its feature records, column by column, in JSON and in Avro.

The value of each record consists of parts. A piece (`RecordPiece`) contains the same part for all records of the batch. Each
tensor becomes one piece with one text per event. The format may need constant pieces before and after it, such as a field name.
Numbers are encoded for all rows of a tensor in one call. Texts, uint64 in Avro, and arrays of varying length are encoded row by
row.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from scorer.features.logged_inputs import LoggedTensor, little_endian
from scorer.native.byte_columns import ByteColumn
from scorer.native.feature_rows import avro_integers, column_of, json_members
from scorer.native.produce_records import RecordPiece, constant
from scorer.scores.avro_values import long, string

Tensors = Mapping[str, NDArray[Any]]
BRACKET = ord("]")
END_OF_ARRAY = b"\0"
"""The end of an array in Avro: a block without elements."""


def json_pieces(logged: Sequence[LoggedTensor], tensors: Tensors, count: int) -> list[RecordPiece]:
    """Encode the members of the JSON object `inputs`, without its braces.

    Args:
        logged: the tensors to encode.
        tensors: the decoded tensors of `count` events by name; see `Decoded`.
        count: the number of events.
    """
    pieces: list[RecordPiece] = []
    for position, tensor in enumerate(logged):
        values = tensors[tensor.tensor]
        names = [b",%b:" % orjson.dumps(field.name) for field in tensor.fields]
        if position == 0:
            names[0] = names[0][1:]
        if tensor.array:
            pieces += [constant(names[0], count), RecordPiece(_json_arrays(tensor, values))]
        elif tensor.dtype == "string":
            pieces.append(RecordPiece(column_of([_json_texts(row, names) for row in _chosen(tensor, values).tolist()])))
        else:
            pieces.append(RecordPiece(json_members(_chosen(tensor, values), names)))
    return pieces


def avro_pieces(logged: Sequence[LoggedTensor], tensors: Tensors, count: int) -> list[RecordPiece]:
    """Encode the Avro record `inputs`. The arguments are the same as those of `json_pieces`."""
    pieces: list[RecordPiece] = []
    for tensor in logged:
        values = tensors[tensor.tensor]
        if tensor.varies:
            pieces.append(RecordPiece(column_of([_avro_array(tensor, row.reshape(1, -1)) for row in values])))
        elif tensor.array:
            block = constant(long(values.shape[1]), count)
            pieces += [block, RecordPiece(_avro_rows(tensor, values)), constant(END_OF_ARRAY, count)]
        else:
            pieces.append(RecordPiece(_avro_rows(tensor, _chosen(tensor, values))))
    return pieces


def _chosen(tensor: LoggedTensor, values: NDArray[Any]) -> NDArray[Any]:
    """Return the logged columns of a tensor of scalar fields."""
    return values if tensor.columns is None else values[:, list(tensor.columns)]


def _json_texts(row: Sequence[str], names: Sequence[bytes]) -> bytes:
    return b"".join(name + orjson.dumps(text) for name, text in zip(names, row, strict=True))


def _json_arrays(tensor: LoggedTensor, values: NDArray[Any]) -> ByteColumn:
    """Encode each row as a flat JSON array."""
    if tensor.dtype == "string":
        return column_of([orjson.dumps(row.ravel().tolist()) for row in values])
    if tensor.varies:
        return column_of([_dump(row.ravel()) for row in values])
    text = _dump(values)
    ends = np.flatnonzero(np.frombuffer(text, np.uint8) == BRACKET)[:-1] + 1
    return ByteColumn.split(text, 1, ends)


def _dump(numbers: NDArray[Any]) -> bytes:
    return orjson.dumps(np.ascontiguousarray(numbers), option=orjson.OPT_SERIALIZE_NUMPY)


def _avro_array(tensor: LoggedTensor, row: NDArray[Any]) -> bytes:
    """Encode a (1, n) row as an Avro array."""
    length = row.shape[1]
    if not length:
        return END_OF_ARRAY
    elements = b"".join(text or b"" for text in _avro_rows(tensor, row))
    return long(length) + elements + END_OF_ARRAY


def _avro_rows(tensor: LoggedTensor, matrix: NDArray[Any]) -> ByteColumn:
    """Encode the elements of each row of a (B, n) matrix, one after the other."""
    match tensor.avro_type:
        case "float" | "double":
            return _fixed_width(np.ascontiguousarray(matrix, little_endian(tensor.dtype)))
        case "boolean":
            return _fixed_width(np.ascontiguousarray(matrix, np.uint8))
        case "int" | "long":
            return avro_integers(matrix)
    return column_of([_avro_texts(row) for row in matrix.tolist()])


def _avro_texts(row: Iterable[str | int]) -> bytes:
    return b"".join(string(str(value)) for value in row)


def _fixed_width(matrix: NDArray[Any]) -> ByteColumn:
    """Return the bytes of each row of a C-contiguous matrix, without a copy."""
    width = matrix.shape[1] * matrix.itemsize
    starts = np.arange(len(matrix), dtype=np.int64) * width
    buffer = matrix.reshape(-1).view(np.uint8)
    return ByteColumn(buffer if buffer.size else np.zeros(1, np.uint8), starts, starts + width)
