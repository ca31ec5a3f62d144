"""Tables in dictionaries: the plainest look-up, with which others are compared."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from model_registry.package.event_tree import look_up
from model_registry.package.field_sources import column_steps
from model_registry.package.signature import InputField
from scorer.tables.lookup import JoinedColumns, Partitions, default_column

Rows = Mapping[tuple[int, bytes], Mapping[str, Any]]
"""The rows of a table by partition and key."""


class DictTables:
    """A look-up of rows by table, partition and key. `asked` has the keys and partitions of each look-up."""

    def __init__(self, tables: Mapping[str, Rows]) -> None:
        self.tables = tables
        self.asked: list[tuple[str, list[bytes | None], list[int]]] = []

    def columns(
        self, table: str, fields: Sequence[InputField], keys: Sequence[bytes | None], partitions: Partitions
    ) -> JoinedColumns:
        numbers = [int(number) for number in partitions]
        self.asked.append((table, list(keys), numbers))
        rows = [None if key is None else self.tables[table].get((at, key)) for at, key in zip(numbers, keys, strict=True)]
        values = {field.name: [None if row is None else look_up(row, column_steps(field)) for row in rows] for field in fields}
        tensors = {field.name: default_column(field, len(rows)) for field in fields}
        for name, column in values.items():
            for index, value in enumerate(column):
                if value is not None:
                    tensors[name][index] = value
        missing = {field.name: np.array([value is None for value in values[field.name]], bool) for field in fields}
        required = {field.name for field in fields if field.required}
        return JoinedColumns(
            np.array([row is not None for row in rows], bool),
            tensors,
            {name: column for name, column in missing.items() if name in required},
        )
