"""Joined fields without rows: each field has its default in the shape of its tensor."""

import math
from typing import Any

import numpy as np
import pytest

from model_registry.package.signature import InputField
from publisher.errors import USAGE, Fatal
from scorer.tables.lookup import EmptyTables, ExampleTables, UnreadTables, default_column


def test_without_rows_no_key_has_a_row_and_each_field_has_its_default() -> None:
    age = InputField("customers.age", "float32", required=False, default=4.5)
    joined = EmptyTables().columns("customers", [age], [b"a", None], [0, 1])
    assert joined.found.tolist() == [False, False]
    assert joined.tensors["customers.age"].tolist() == [[4.5], [4.5]]
    assert joined.missing == {}


def test_without_rows_a_required_field_is_missing_in_each_event() -> None:
    joined = EmptyTables().columns("customers", [InputField("customers.age", "int64")], [b"a"], [0])
    assert joined.missing["customers.age"].tolist() == [True]
    assert joined.tensors["customers.age"].shape == (1, 1)


def test_an_example_row_has_every_key_and_each_value() -> None:
    age = InputField("customers.age", "float32")
    size = InputField("customers.size", "float32", required=False, default=0.5)
    tables = ExampleTables({"customers.age": np.array([[41]], np.float32)})
    joined = tables.columns("customers", [age, size], [b"a", None], [0, 1])
    assert joined.found.tolist() == [True, True]
    assert joined.tensors["customers.age"].tolist() == [[41.0], [41.0]]
    assert joined.tensors["customers.size"].tolist() == [[0.5], [0.5]]
    assert joined.missing["customers.age"].tolist() == [False, False]


def test_a_process_that_reads_no_tables_names_the_fields_and_the_remedy() -> None:
    with pytest.raises(Fatal, match=r"the fields 'customers.age', joined from the table customers") as raised:
        UnreadTables().columns("customers", [InputField("customers.age", "int64")], [b"a"], [0])
    assert "set features.topic" in raised.value.hint
    assert raised.value.exit_code == USAGE


@pytest.mark.parametrize(
    ("field", "shape", "dtype"),
    [
        (InputField("t.a", "float64", required=False, default=math.nan), (3, 1), np.float64),
        (InputField("t.a", "bool", required=False, default=True), (3, 1), np.bool_),
        (InputField("t.a", "string", required=False, default="x"), (3, 1), np.object_),
        (InputField("t.a", "int8", required=False, default=1, array=4), (3, 4), np.int8),
        (InputField("t.a", "float32", required=False, array=9, shape=(-1, 3)), (3,), np.object_),
    ],
)
def test_defaults_have_the_shape_of_the_fields_tensor(field: InputField, shape: tuple[int, ...], dtype: type[Any]) -> None:
    column = default_column(field, 3)
    assert column.shape == shape
    assert column.dtype == np.dtype(dtype)


def test_the_default_of_an_array_of_varying_length_is_an_empty_array() -> None:
    column = default_column(InputField("t.a", "float32", required=False, array=9, shape=(-1, 3)), 2)
    assert [array.shape for array in column] == [(0, 3), (0, 3)]
