"""The native hashes of columns are those of the library xxhash."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh64_intdigest

from scorer.native.xxhash import xxh64
from tests.unit.scorer.decoding.formats import scattered, texts


@pytest.mark.debian("cc")
@given(values=st.lists(st.none() | st.binary(max_size=80), max_size=6), seed=st.integers(0, 2**64 - 1))
def test_texts_in_any_order_and_with_gaps_have_the_hashes_of_the_library(values: list[bytes | None], seed: int) -> None:
    expected = [xxh64_intdigest(value or b"", seed) for value in values]
    for column in (values, texts(values), scattered(values)):
        assert xxh64(column, seed).tolist() == expected
