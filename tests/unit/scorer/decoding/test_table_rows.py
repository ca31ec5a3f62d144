"""The decoding of rows of a table to joined fields."""

from typing import Any

import pytest

from scorer.decoding.table_rows import row_decoder_factory
from scorer.tables.row_blocks import BlockLayout
from tests.unit.scorer.decoding.formats import signature_of
from tests.unit.scorer.minimal import minimal


@pytest.mark.parametrize("is_reversed", [False, True])
def test_a_field_with_a_path_may_have_the_name_of_another_column(*, is_reversed: bool) -> None:
    nested = {"name": "age", "path": "profile.age", "from": "table:customers", "default": -1}
    prefixed = {"name": "customers.age", "from": "table:customers", "default": -1}
    field_definitions: list[Any] = [prefixed, nested] if is_reversed else [nested, prefixed]
    layout = BlockLayout(signature_of(("x", "float32", field_definitions)).fields)
    decoder = row_decoder_factory("customers", minimal(tables={"customers": {"topic": "customers"}}))(layout)
    tensors = layout.tensors(decoder.decode([b'{"age": 1, "profile": {"age": 2}}', b'{"age": 3}']).blocks)
    assert {name: tensor.tolist() for name, tensor in tensors.items()} == {"age": [[2], [-1]], "customers.age": [[1], [3]]}
