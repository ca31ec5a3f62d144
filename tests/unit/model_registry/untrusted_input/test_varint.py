"""Variable-length integers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_registry.untrusted_input.varint import encode_varint, read_varint


@given(st.integers(0, 2**64 - 1), st.binary(max_size=3), st.binary(max_size=3))
def test_an_encoded_number_is_read_back_at_any_position(number: int, before: bytes, after: bytes) -> None:
    data = before + encode_varint(number) + after
    assert read_varint(data, len(before), len(data)) == (number, len(data) - len(after))


@pytest.mark.parametrize("data", [b"", b"\x80", b"\xff" * 11], ids=["empty", "cut off", "too long"])
def test_a_number_without_an_end_is_rejected(data: bytes) -> None:
    with pytest.raises(ValueError, match="is incomplete"):
        read_varint(data, 0, len(data))


def test_a_number_is_not_read_beyond_the_end_of_its_message() -> None:
    with pytest.raises(ValueError, match="is incomplete"):
        read_varint(b"\x80\x01", 0, 1)
    with pytest.raises(ValueError, match="is incomplete"):
        read_varint(b"\x80\x80\x01", 0, 3, longest=2)
