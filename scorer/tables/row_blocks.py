"""The form in which the columns of rows are stored and decoded: blocks, and the protocol of the decoder of rows.

A *block* is one array with the values of several joined fields. All scalar fields of a dtype share a block, so that a look-up
reads them from one place in memory. An array field has a block of its own. This module depends on the types of signatures only.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from model_registry.package.dtypes import array_dtype
from model_registry.package.signature import InputField
from scorer.dead_letters.reasons import Poison
from scorer.tables.lookup import default_column

Fields = tuple[InputField, ...]
Blocks = Sequence[NDArray[Any]]


class BlockLayout:
    """The division of the joined fields of one signature and table into blocks.

    A block is one array with the values of several fields: all scalar fields of a dtype, or one array field.

    Attributes:
        fields: the joined fields.
        blocks: for each block, the fields whose values it contains.
        required: the names of the required fields.
    """

    def __init__(self, fields: Fields) -> None:
        self.fields = fields
        groups: dict[str, list[InputField]] = {}
        for field in fields:
            is_scalar = field.array is None and not field.raw
            groups.setdefault(field.dtype if is_scalar else f"field {field.name}", []).append(field)
        self.blocks = [tuple(group) for group in groups.values()]
        self.required = tuple(field.name for field in fields if field.required)

    def defaults(self, count: int) -> list[NDArray[Any]]:
        """Return blocks of `count` rows in which every field is absent: the defaults of the fields, zeros without a default."""
        return [np.concatenate([default_column(field, count) for field in block], axis=-1) for block in self.blocks]

    def empty(self, count: int) -> list[NDArray[Any]]:
        """Return blocks for `count` rows whose values are undefined."""
        arrays = []
        for block in self.blocks:
            first = block[0]
            width = first.array or len(block)
            dtype = "O" if first.varies else array_dtype(first.dtype)
            arrays.append(np.empty((count,) if first.varies else (count, width), dtype))
        return arrays

    def tensors(self, blocks: Blocks) -> dict[str, NDArray[Any]]:
        """Return the values of each field in the form of `JoinedColumns.tensors`, as views of the blocks."""
        tensors = {}
        for block, array in zip(self.blocks, blocks, strict=True):
            for column, field in enumerate(block):
                tensors[field.name] = array if field.array is not None or field.raw else array[:, column : column + 1]
        return tensors


@dataclass(frozen=True, slots=True)
class DecodedRows:
    """The decoded fields of n rows of a table.

    Attributes:
        found: (n,) bool: whether the row could be decoded.
        blocks: the values of the fields: one array for each block of the `BlockLayout`, with n rows. An absent value, and each
            value of a row that could not be decoded, is replaced by the default of its field.
        missing: (n, number of required fields) bool: whether the row has no value for the field.
        rejected: the error of each row that could not be decoded, by its index.
    """

    found: NDArray[np.bool_]
    blocks: Blocks
    missing: NDArray[np.bool_]
    rejected: Mapping[int, Poison]


class RowDecoder(Protocol):
    """A decoder of rows to the fields of one `BlockLayout`. Calls must not overlap."""

    def decode(self, values: Sequence[bytes | None]) -> DecodedRows:
        """Decode rows. A row that cannot be decoded raises no error; see `DecodedRows`.

        Raises:
            DependencyUnavailable: the schema registry does not answer yet. The caller must decode the rows again.
            Fatal: the schema registry rejects all requests.
        """


CreateRowDecoder = Callable[[BlockLayout], RowDecoder]
"""Creates the decoder of the rows of one table for the fields of a layout. Raises FormatMismatch."""
