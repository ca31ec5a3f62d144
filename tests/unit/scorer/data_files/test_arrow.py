from typing import Any

import pyarrow
import pytest

from scorer.data_files.arrow import MixedTypes, fits, infer_type, known_type

DOUBLES = pyarrow.list_(pyarrow.float64())


@pytest.mark.parametrize(
    ("values", "type_"),
    [
        ([1, None, 2.5], pyarrow.float64()),
        ([1, 2], pyarrow.float64()),
        ([[1], [0.5, 2]], DOUBLES),
        ([[[1]]], pyarrow.list_(DOUBLES)),
        (["a", None], pyarrow.string()),
        ([True], pyarrow.bool_()),
        ([{"a": 1}, {"b": ["x"]}], pyarrow.struct([("a", pyarrow.float64()), ("b", pyarrow.list_(pyarrow.string()))])),
        ([None], pyarrow.null()),
    ],
)
def test_the_type_of_json_values(values: list[Any], type_: Any) -> None:
    assert infer_type(values) == type_


@pytest.mark.parametrize("values", [[1, [1]], ["a", 1], [{"a": 1}, [1]], [2**60 + 1], [[2**60 + 1]]])
def test_values_without_a_common_type_are_rejected(values: list[Any]) -> None:
    with pytest.raises(MixedTypes):
        infer_type(values)


@pytest.mark.parametrize(
    ("values", "column", "is_compatible"),
    [
        ([1.5], [2], True),
        ([None], [[1]], True),
        ([[]], [[1]], True),
        ([[1]], [1], False),
        ([{"a": 1}], [{"a": 2, "b": 3}], True),
        ([{"a": 1, "c": 1}], [{"a": 2, "b": 3}], False),
        ([{"a": [1]}], [{"a": 2}], False),
    ],
)
def test_values_fit_into_a_column_only_without_loss(values: list[Any], column: list[Any], is_compatible: bool) -> None:
    assert fits(infer_type(values), infer_type(column)) is is_compatible


def test_an_unknown_part_of_a_type_is_a_number() -> None:
    assert known_type(infer_type([None])) == pyarrow.float64()
    assert known_type(infer_type([[]])) == DOUBLES
