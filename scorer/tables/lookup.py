"""The look-up of joined fields: the protocol, its result, and a look-up without rows.

A joined field is a field of the signature whose value comes from a table. Decoders use this module. It depends on the types of
signatures only, and must not depend on how rows are stored or read.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol

import numpy as np
from numpy.typing import NDArray

from model_registry.package.dtypes import array_dtype
from model_registry.package.model_inputs import ragged
from model_registry.package.shapes import with_length
from model_registry.package.signature import InputField
from publisher.errors import USAGE, Fatal

Partitions = Sequence[int] | NDArray[np.int32]
"""The input partition of each event of a batch."""


@dataclass(frozen=True, slots=True)
class JoinedColumns:
    """The joined fields of one table for the B events of a batch.

    The arrays belong to the caller, who may change them.

    Attributes:
        found: (B,) bool: whether the table has a row with the key of the event, and the row could be decoded.
        tensors: the values of each field, by the name of the field: (B, 1) for a scalar, (B, n) for an array of n elements,
            a (B,) object array of arrays for an array of varying length. Strings are object arrays. An absent value is replaced
            by the default of the field. The entry of a required field without a value is undefined.
        missing: for each required field, by its name, (B,) bool: whether the event has no value for the field.
    """

    found: NDArray[np.bool_]
    tensors: dict[str, NDArray[Any]]
    missing: dict[str, NDArray[np.bool_]]


class TableLookup(Protocol):
    """The look-up of joined fields for batches of events. Any thread may call it."""

    def columns(
        self, table: str, fields: Sequence[InputField], keys: Sequence[bytes | None], partitions: Partitions
    ) -> JoinedColumns:
        """Look up the table rows for the events of a batch, and return the joined fields.

        A missing row, an absent value or a row that cannot be decoded raises no error; see `JoinedColumns`.

        Args:
            table: the name of the table in the settings.
            fields: the joined fields of the table. Their paths are relative to the row.
            keys: the key of the row of each event; None for an event without a key. A `ByteColumn` is looked up fastest.
            partitions: the input partition of each event, which selects the rows of a table of `scope: partition`.

        Raises:
            KeyError: there is no such table.
        """


class EmptyTables:
    """A look-up in which each table exists, but has no rows, so that every joined field has its default."""

    def columns(
        self,
        table: str,  # noqa: ARG002 - the protocol has it
        fields: Sequence[InputField],
        keys: Sequence[bytes | None],
        partitions: Partitions,  # noqa: ARG002 - the protocol has it
    ) -> JoinedColumns:
        """Return the default of each field for each event; see `TableLookup`."""
        count = len(keys)
        return JoinedColumns(
            np.zeros(count, np.bool_),
            {field.name: default_column(field, count) for field in fields},
            {field.name: np.ones(count, np.bool_) for field in fields if field.required},
        )


class ExampleTables:
    """A look-up in which every key has the same row. It replaces the tables when a model version is tried without them.

    Args:
        values: the value of each field, by the name of the field, in the form of one row of `JoinedColumns.tensors`. A field
            without a value has its default, or zeros if it is required.
    """

    def __init__(self, values: Mapping[str, NDArray[Any]] | None = None) -> None:
        self._values = values or {}

    def columns(
        self,
        table: str,  # noqa: ARG002 - the protocol has it
        fields: Sequence[InputField],
        keys: Sequence[bytes | None],
        partitions: Partitions,  # noqa: ARG002 - the protocol has it
    ) -> JoinedColumns:
        """Return the values of the row for each event; see `TableLookup`."""
        count = len(keys)
        rows = {field.name: self._values.get(field.name, default_column(field, 1)) for field in fields}
        return JoinedColumns(
            np.ones(count, np.bool_),
            {name: np.repeat(row, count, axis=0) for name, row in rows.items()},
            {field.name: np.zeros(count, np.bool_) for field in fields if field.required},
        )


class UnreadTables:
    """A look-up that always raises Fatal, for a process that reads no tables.

    The current rows must not be used to score a past event again: they may differ from the rows at the time of its score.
    """

    def columns(
        self,
        table: str,
        fields: Sequence[InputField],
        keys: Sequence[bytes | None],  # noqa: ARG002 - the protocol has it
        partitions: Partitions,  # noqa: ARG002 - the protocol has it
    ) -> NoReturn:
        """Raise Fatal, which names the table and the remedy."""
        names = ", ".join(repr(field.name) for field in fields)
        raise Fatal(
            f"the values of the fields {names}, joined from the table {table} at the time of a score, are not recoverable",
            "set features.topic, so that the scorers log the inputs of each score from then on",
            USAGE,
        )


def default_column(field: InputField, count: int) -> NDArray[Any]:
    """Return the values of `count` rows in which a field is absent, in the form of `JoinedColumns.tensors`.

    If the field is required, the values are zeros (empty texts for strings).
    """
    dtype = np.dtype(array_dtype(field.dtype))
    if field.varies:
        empty = np.empty(with_length(field.shape or (), 0), dtype)
        return ragged([empty] * count, count)
    value: Any = field.default
    if field.required:
        value = "" if field.dtype == "string" else 0
    return np.full((count, field.array or 1), value, dtype)
