"""Digests: syntax, and content that is checked while it streams."""

import hashlib
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_registry.errors import Corrupt
from model_registry.oci import digests


@given(st.binary(max_size=2000))
def test_digests_are_hashlib_s(data: bytes) -> None:
    expected = hashlib.sha256(data).hexdigest()
    assert digests.of_bytes(data) == f"sha256:{expected}"
    assert digests.of_stream(io.BytesIO(data)) == (f"sha256:{expected}", len(data))
    assert digests.hex_of(digests.of_bytes(data)) == expected


@given(st.text(max_size=80) | st.text("0123456789abcdef/.", min_size=60, max_size=66).map("sha256:".__add__))
def test_only_digests_become_file_names(text: str) -> None:
    if digests.is_digest(text):
        assert set(digests.hex_of(text)) <= set("0123456789abcdef")
        assert len(digests.hex_of(text)) == 64
    else:
        with pytest.raises(Corrupt):
            digests.hex_of(text)
